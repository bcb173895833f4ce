"""The command line of `gateway send pomelo`."""

from __future__ import annotations

from argparse import ArgumentParser

from gateway.sdk.command import positive
from gateway.sdk.protocol import Sender


def _add_options(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("--route", default="area.player.move", metavar="R",
        help="of all messages (default: area.player.move)")  # fmt: skip
    add("--depth", type=positive, default=10, metavar="D",
        help="most requests in flight on a connection (default: 10)")  # fmt: skip
    add("--notify", action="store_true",
        help="send notifies, with a request after each 99 to learn of their fate")  # fmt: skip
    add("--token", metavar="T",
        help="what the gateway asks for (options.token, or JWT)")  # fmt: skip


SENDER = Sender(
    help="Pomelo, as game clients speak it",
    description="Send requests as a game client would; 200 is an acknowledgement.",
    examples="""\
  gateway send pomelo 127.0.0.1:3010 --generate 100000 --connections 100
  gateway send pomelo gw.example:3010 --route area.chat.say --file said.ndjson --tls
  gateway send pomelo 127.0.0.1:3010 --websocket /
""",
    add_options=_add_options,
    sending="gateway.protocols.pomelo.sending:Sending",
)
