"""What the job says on standard error."""

import logging
from types import SimpleNamespace

from py4j.java_gateway import GatewayClient
from py4j.protocol import Py4JNetworkError

from gateway.spark.run import progress


class CutShort:
    """A connection to a Java that has gone."""

    def send_command(self, command: str) -> str:
        raise Py4JNetworkError("Error while sending or receiving")

    def close(self, reset: bool = False) -> None:
        pass


def test_py4j_says_nothing_of_a_command_that_a_stop_cuts_short(capsys, monkeypatch):
    """Neither a word nor a trace; other people's words to the root are heard."""
    root, client = logging.getLogger(), GatewayClient()
    monkeypatch.setattr(root, "handlers", [logging.StreamHandler()])
    monkeypatch.setattr(root, "filters", [])
    monkeypatch.setattr(client, "_get_connection", CutShort)
    progress.start_logging(SimpleNamespace(format="text", level="info"))
    client.send_command("c\n")
    root.error("something else")
    assert capsys.readouterr().err == "something else\n"
