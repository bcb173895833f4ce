"""Throws bytes at Pravega's controller, guided by what they reach (atheris).

    python tests/fuzz/fuzz_controller.py -max_total_time=60

What must hold: of any bytes of HTTP/2, in any slicing, comes nothing but calls and at
most one `Refusal`; of any message to any method, an answer or a `Failed`; and a restart
from the changes that calls have made knows the same scopes, streams and transactions.
"""

from collections.abc import Iterator
from contextlib import suppress

import atheris
from _run import fuzz, sliced
from twisted.internet.task import Clock

with atheris.instrument_imports(include=["gateway.protocols.pravega.controller", "h2"]):
    from h2.config import H2Configuration
    from h2.connection import H2Connection

    from gateway.protocols.pravega.container import Container
    from gateway.protocols.pravega.controller import messages
    from gateway.protocols.pravega.controller.controller import Controller
    from gateway.protocols.pravega.controller.grpc import Calls, Failed
    from gateway.protocols.pravega.controller.methods import Caller
    from gateway.protocols.pravega.options import Options
    from gateway.sdk.costs import Turn
    from gateway.sdk.interfaces import Refusal
    from gateway.testing import ManualJournal

_SERVICE = "/io.pravega.controller.stream.api.grpc.v1.ControllerService/"
_CALLER = Caller("localhost:9090", "ann", turn=Turn(float("inf")))
_INFO = messages.StreamInfo(scope="s", stream="t")
_TXN = messages.TxnId(high=1, low=2)
_MESSAGES = [
    messages.ScopeInfo(scope="s"),
    _INFO,
    messages.StreamConfig(
        stream_info=_INFO, scaling=messages.ScalingPolicy(segments=2)
    ),
    messages.StreamCut(stream_info=_INFO, cut={0: 0, 1: 0}),
    messages.SegmentId(stream_info=_INFO, number=1),
    messages.CreateTxnRequest(stream_info=_INFO, lease=1000),
    messages.TxnRequest(stream_info=_INFO, txn=_TXN),
    messages.ReaderGroupConfiguration(scope="s", name="g", id="i", retention=2),
    messages.ReaderGroupInfo(scope="s", name="g", id="i"),
]


def _controller(journal: ManualJournal, before: ManualJournal | None) -> Controller:
    """A controller on a journal; what an earlier one stored comes first."""
    clock = Clock()
    container = Container(journal, clock)
    for stored in before.stored if before is not None else ():
        container.replay(stored)
    made = Controller(container, Options(segments=50), lambda host: (host, 1))
    container.start()
    made.start()
    journal.store_all()
    return made


def transport(data: bytes) -> None:
    """HTTP/2: the first byte says how to slice."""
    server = Calls(message_bytes=100, streams=5)
    try:
        for piece in sliced(data[1:], data[0] & 0x7F):
            for call in server.received(piece, Turn(1e9)):
                assert len(call.message) <= 100
                if len(call.message) & 1:
                    server.answer(call, call.message * 3)
            assert server.held_bytes <= 5 * 105
            server.output()
    except Refusal:
        pass


def methods(data: bytes) -> None:
    """Calls: which method, how long a message, the message."""
    journal = ManualJournal()
    controller = _controller(journal, None)
    names = sorted(controller._methods)
    at = 1
    while at + 2 <= len(data):
        name = names[data[at] % len(names)]
        size = data[at + 1]
        with suppress(Failed):
            controller.call(_SERVICE + name, data[at + 2 : at + 2 + size], _CALLER)
        journal.store_all()
        at += 2 + size
    controller.stop()
    again = _controller(ManualJournal(), journal)
    mine, theirs = controller._catalog, again._catalog
    assert mine.scopes == theirs.scopes
    assert mine.transactions.keys() == theirs.transactions.keys()
    again.stop()


def one(data: bytes) -> None:
    """One run; the first bit says of which half."""
    if data:
        (transport if data[0] & 0x80 else methods)(data)


def seeds() -> Iterator[bytes]:
    """A client's bytes, and every method with messages that fit."""
    client = H2Connection(H2Configuration(header_encoding="utf-8"))
    client.initiate_connection()
    head = {
        ":method": "POST",
        ":scheme": "http",
        ":path": _SERVICE + "createScope",
        ":authority": "a",
        "content-type": "application/grpc",
    }
    client.send_headers(1, list(head.items()))
    client.send_data(1, b"\0\0\0\0\3\x0a\x01s", end_stream=True)
    probe = _controller(ManualJournal(), None)
    names = sorted(probe._methods)
    begin = b"".join(
        bytes([names.index(name), len(raw)]) + raw
        for name, raw in (
            ("createScope", _MESSAGES[0].SerializeToString()),
            ("createStream", _MESSAGES[2].SerializeToString()),
        )
    )
    yield b"\x80" + client.data_to_send()
    for number in range(len(names)):
        for message in _MESSAGES:
            raw = message.SerializeToString()
            yield b"\0" + begin + bytes([number, len(raw)]) + raw


if __name__ == "__main__":
    fuzz(one, seeds())
