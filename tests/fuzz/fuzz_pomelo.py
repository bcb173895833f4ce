"""Throws bytes at the Pomelo session, guided by what they reach (atheris).

    python tests/fuzz/fuzz_pomelo.py -max_total_time=60

What must hold: of any bytes, in any slicing, comes nothing but batches, each of which
decodes to as many rows as were counted, replies, and at most one `Refusal` that tells
the client why; what is buffered stays within the limits.
"""

from collections.abc import Iterator

import atheris
from _run import fuzz, sliced, vectors

with atheris.instrument_imports(include=["gateway.protocols.pomelo"]):
    from gateway.protocols.pomelo import wire
    from gateway.protocols.pomelo.auth import admission
    from gateway.protocols.pomelo.events import decode
    from gateway.protocols.pomelo.handshake import Handshaker
    from gateway.protocols.pomelo.ready import Ready
    from gateway.protocols.pomelo.routes import load
    from gateway.protocols.pomelo.session import Session
    from gateway.sdk.interfaces import Refusal

_FIRST, *_VALUES = vectors("pomelo-protobuf")
_ROUTES = [key for key in _FIRST["source"] if not key.startswith("message ")]
_HELLO = wire.package(wire.HANDSHAKE, b'{"sys":{}}') + wire.package(wire.ACK)
_HANDSHAKER = Handshaker(
    load(_ROUTES, _FIRST["source"], None),
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
    session = Session(_HANDSHAKER, message_bytes=2000, handshake_bytes=500, patience=9)
    if how & 0x80:
        list(session.received(_HELLO))
    try:
        for piece in sliced(stream, how & 0x7F):
            for said in session.received(piece):
                if isinstance(said, Ready):
                    rows = decode(said.body(2000))
                    assert len(rows.payloads) == len(rows.seqs or ()) == said.count
                    assert len(session.answers(said)) == len(said.ids)
            assert session.held_bytes < 3000
    except Refusal as why:
        if not why.reply:
            raise


def seeds() -> Iterator[bytes]:
    """The vectors, as packages behind a handshake."""
    lines = vectors("pomelo-messages")[::7]
    messages = [bytes.fromhex(line["hex"]) for line in lines]
    for value in _VALUES:
        body = bytes.fromhex(value["hex"])
        code = _ROUTES.index(value["route"]) + 1
        messages.append(b"\x03" + code.to_bytes(2) + body)
    for message in messages:
        yield b"\x80" + wire.package(wire.DATA, message)
    yield b"\x00" + _HELLO


if __name__ == "__main__":
    fuzz(one, seeds())
