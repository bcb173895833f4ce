"""Throws bytes at the RS.io server, guided by what they reach (atheris).

    python tests/fuzz/fuzz_rsio.py -max_total_time=60

What must hold: of any bytes, in any slicing, comes nothing but events and at most one
`Refusal`, whose reply ends with a goodbye; every run decodes to as many elements as
were counted, none of them beyond the demand; what is buffered stays within the limits.
"""

from collections.abc import Iterator

import atheris
from _run import fuzz, sliced, vectors

with atheris.instrument_imports(include=["gateway.protocols.rsio"]):
    from gateway.protocols.rsio import events, wire
    from gateway.protocols.rsio.decoder import Run
    from gateway.protocols.rsio.events import Part
    from gateway.protocols.rsio.limits import Limits
    from gateway.protocols.rsio.messages import ClientHello, Extension, OnSubscribe
    from gateway.protocols.rsio.session import Session
    from gateway.protocols.rsio.signals import SubscribeReceived
    from gateway.sdk.interfaces import Refusal

_LIMITS = Limits(
    element_bytes=200, declared_bytes=1000, part_bytes=100, unfinished_elements=4,
    unfinished_bytes=400, streams=4, inflated_bytes=2000,
)  # fmt: skip
_HELLO = wire.encode(ClientHello(0, tuple(Extension)))
_SIZES = (0, 0, 3)
_DEMAND = 20


def one(data: bytes) -> None:
    """One run.  The first byte says how to slice."""
    if not data:
        return
    session = Session(_LIMITS, server=True, offered=list(Extension))
    list(session.received(_HELLO))
    for number, size in enumerate(_SIZES, 1):
        session.consumer.subscribe("events", _DEMAND)
        list(session.received(wire.encode(OnSubscribe(number, size))))
    arrived = dict.fromkeys(range(1, len(_SIZES) + 1), 0)
    try:
        for piece in sliced(data[1:], data[0]):
            for event in session.received(piece):
                if isinstance(event, Run):
                    arrived[event.stream.id] += event.count
                    assert arrived[event.stream.id] <= _DEMAND
                    _decode(event)
                elif isinstance(event, SubscribeReceived):
                    session.producer.accept(event.stream)
            assert session.held_bytes < 10_000
    except Refusal as why:
        assert b"\x03" in why.reply  # noqa: PT017 - no test, a target
    session.take()


def _decode(run: Run) -> None:
    stream = run.stream
    part = Part(stream.publisher, stream.id, stream.size, 1, run.count, 0)
    body = events.pack([part], [run], message_bytes=99, content_type="application/json")
    rows = events.decode(body)
    assert rows.count == run.count
    assert sum(map(len, rows.each())) == run.octets


def seeds() -> Iterator[bytes]:
    """The vectors, whole and byte by byte."""
    for vector in vectors("rsio"):
        for how in (0, 1):
            yield bytes([how]) + bytes.fromhex(vector["hex"])


if __name__ == "__main__":
    fuzz(one, seeds())
