"""Throws bytes at the Lumberjack reader, guided by what they reach (atheris).

    python tests/fuzz/fuzz_lumberjack.py -max_total_time=60

What must hold: of any bytes, in any slicing, comes nothing but complete windows, each
of which decodes to as many rows as were counted, and at most one `Refusal`; what is
buffered stays within the limits.
"""

import zlib
from collections.abc import Iterator

import atheris
from _run import fuzz, sliced, vectors

with atheris.instrument_imports(include=["gateway.protocols.lumberjack"]):
    from gateway.protocols.lumberjack.events import decode
    from gateway.protocols.lumberjack.session import Limits, Session
    from gateway.sdk.interfaces import Refusal

_LIMITS = Limits(
    message_bytes=200, inflated_bytes=100_000, compressed_bytes=50_000,
    window_events=100, pairs=16,
)  # fmt: skip


def one(data: bytes) -> None:
    """One run.  The first byte says how to slice, and whether zlib comes first:
    a mutated checksum would hide what lies behind it.
    """
    if not data:
        return
    how, stream = data[0], data[1:]
    if how & 0x80:
        payload = zlib.compress(stream, 1)
        stream = b"2C" + len(payload).to_bytes(4) + payload
    session = Session(_LIMITS)
    try:
        for piece in sliced(stream, how & 0x7F):
            for ready in session.received(piece):
                assert ready.ack or not ready.count
                if ready.count:
                    rows = decode(ready.body)
                    assert rows.count == len(rows.seqs or ()) == ready.count
            assert session.held_bytes < 1_000_000
    except Refusal:
        pass


def seeds() -> Iterator[bytes]:
    """The vectors, whole and after their zlib is taken off."""
    for vector in vectors("lumberjack"):
        for how in (0, 1, 0x80):
            yield bytes([how]) + bytes.fromhex(vector["hex"])


if __name__ == "__main__":
    fuzz(one, seeds())
