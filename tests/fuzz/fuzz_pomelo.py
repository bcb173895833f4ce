"""Throws bytes at the Pomelo session, guided by what they reach (atheris).

    python tests/fuzz/fuzz_pomelo.py -max_total_time=60

What must hold: of any bytes, in any slicing, comes nothing but batches, each of which
decodes to as many rows as were counted, replies, and at most one `Refusal` that tells
the client why; what is buffered stays within the limits.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["gateway.protocols.pomelo"]):
    from gateway.interfaces import Refusal
    from gateway.protocols.pomelo import wire
    from gateway.protocols.pomelo.auth import admission
    from gateway.protocols.pomelo.events import decode
    from gateway.protocols.pomelo.handshake import Handshaker
    from gateway.protocols.pomelo.routes import load
    from gateway.protocols.pomelo.session import Ready, Session

_VECTORS = Path(__file__).parents[1] / "vectors"
_FIRST, *_VALUES = (
    json.loads(line)
    for line in (_VECTORS / "pomelo-protobuf.jsonl").read_text().splitlines()
)
_ROUTES = [key for key in _FIRST["source"] if not key.startswith("message ")]
_HELLO = wire.package(wire.HANDSHAKE, b'{"sys":{}}') + wire.package(wire.ACK)
_HANDSHAKER = Handshaker(
    load(_ROUTES, _FIRST["source"], _FIRST["source"]),
    admission(None, None),
    heartbeat=3,
    user_bytes=100,
    profiles={},
    clients={},
)


def one(data: bytes) -> None:
    """One run.  The first byte says how to slice, and whether a handshake comes first."""
    if not data:
        return
    how, stream = data[0], data[1:]
    step = (how & 0x7F) or len(stream) or 1
    session = Session(_HANDSHAKER, message_bytes=2000, handshake_bytes=500, patience=9)
    if how & 0x80:
        list(session.received(_HELLO))
    try:
        for at in range(0, len(stream), step):
            for said in session.received(stream[at : at + step]):
                if isinstance(said, Ready):
                    rows = decode(said.body(2000))
                    assert len(rows.payloads) == len(rows.seqs or ()) == said.count
                    assert len(session.answers(said)) == len(said.ids)
            assert session.held_bytes < 3000
    except Refusal as why:
        if not why.reply:
            raise


def main() -> None:
    """Start from the vectors, as packages behind a handshake."""
    with tempfile.TemporaryDirectory() as corpus:
        lines = (_VECTORS / "pomelo-messages.jsonl").read_text().splitlines()
        messages = [bytes.fromhex(json.loads(line)["hex"]) for line in lines[::7]]
        for value in _VALUES:
            body = bytes.fromhex(value["hex"])
            code = _ROUTES.index(value["route"]) + 1
            messages.append(b"\x03" + code.to_bytes(2) + body)
        for number, message in enumerate(messages):
            stream = wire.package(wire.DATA, message)
            Path(corpus, f"{number}-1").write_bytes(b"\x80" + stream)
        Path(corpus, "hello").write_bytes(b"\x00" + _HELLO)
        atheris.Setup([*sys.argv, corpus], one)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
