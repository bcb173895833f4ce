"""The command line of `gateway send rsio`."""

from __future__ import annotations

from argparse import ArgumentParser

from gateway.sdk.command import add_http2, positive
from gateway.sdk.protocol import Sender


def _add_options(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("--publisher", default="events", metavar="P",
        help="the name that the gateway subscribes to (default: events)")  # fmt: skip
    add("--packed", type=positive, default=0, metavar="BYTES",
        help="send elements of exactly so many bytes, packed; shorter events are filled "
        "with blanks")  # fmt: skip
    add("--name", metavar="N",
        help="who we are (default: nobody else); -1, -2 … is added for each connection")  # fmt: skip
    add("--token", metavar="T", help="what the gateway asks for (options.tokens)")
    add("--compress", action="store_true", help="if the gateway can")
    add_http2(parser)


SENDER = Sender(
    help="Reactive Streams IO, as a publisher speaks it",
    description="Publish events as the gateway asks for them; that it asks for more is the\n"
    "acknowledgement.  Each exactly once however often the connection breaks, if\n"
    "the gateway has options.offsets.",
    examples="""\
  gateway send rsio 127.0.0.1:7400 --generate 100000
  gateway send rsio gw.example:7400 --publisher meters --file readings.ndjson --tls
  gateway send rsio 127.0.0.1:7400 --packed 256
  gateway send rsio unix:/run/gateway/rsio.sock --stdin
  socat EXEC:'ssh edge gateway send rsio --stdio --file app.ndjson' TCP:127.0.0.1:7400
""",
    add_options=_add_options,
    sending="gateway.protocols.rsio.sending:Sending",
)
