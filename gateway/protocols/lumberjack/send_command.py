"""The command line of `gateway send lumberjack`."""

from __future__ import annotations

from argparse import ArgumentParser

from gateway.sdk.command import positive
from gateway.sdk.protocol import Sender


def _add_options(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("--window", type=positive, default=2048, metavar="W",
        help="most events in one window (default: 2048)")  # fmt: skip
    add("--pipelining", type=positive, default=2, metavar="P",
        help="most windows in flight on a connection (default: 2)")  # fmt: skip
    add("--compression", type=int, choices=range(10), default=3, metavar="L",
        help="zlib level 1-9, 0 for none (default: 3)")  # fmt: skip
    add("--v1", action="store_true", help="speak the old version")


SENDER = Sender(
    help="Lumberjack v1 or v2, as Beats speak it",
    description="Send events as a Beats shipper would.",
    examples="""\
  gateway send lumberjack 127.0.0.1:5044 --generate 100000
  gateway send lumberjack gw.example:5044 --file app.log --tls --ca ca.pem
  tail -F app.log | gateway send lumberjack 127.0.0.1:5044 --stdin
""",
    add_options=_add_options,
    sending="gateway.protocols.lumberjack.sending:Sending",
)
