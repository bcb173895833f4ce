"""The command line of `gateway send pravega`."""

from __future__ import annotations

from argparse import ArgumentParser

from gateway.sdk.command import positive
from gateway.sdk.protocol import Sender


def _add_options(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("--dialect", choices=("seed", "v17"), default="v17",
        help="version of the protocol: v17, or seed for the 2016 draft "
        "(default: v17)")  # fmt: skip
    add("--segment", default="demo/events/0.#epoch.0", metavar="S",
        help="where to append; created if it does not exist "
        "(default: demo/events/0.#epoch.0)")  # fmt: skip
    add("--window", type=positive, default=4096, metavar="W",
        help="most events in flight on a connection (default: 4096)")  # fmt: skip
    add("--token", metavar="T",
        help="a delegation token of the controller, where one is required")  # fmt: skip


SENDER = Sender(
    help="appends to a segment of Pravega's segment store",
    description="Append events to a segment, each exactly once even if the connection breaks.\n"
    "Each connection is a writer with its own id.",
    examples="""\
  gateway send pravega 127.0.0.1:12345 --generate 100000
  gateway send pravega gw.example:12345 --dialect seed --file readings.ndjson --tls
  gateway send pravega 127.0.0.1:12345 --segment plant/meters/0.#epoch.0 --stdin
""",
    add_options=_add_options,
    sending="gateway.protocols.pravega.sending:Sending",
    websocket=False,
)
