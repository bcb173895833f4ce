"""RS.io over HTTP/2 without TLS: curl, and the octets of its definition."""

import re
from pathlib import Path
from typing import Any

import programs
from gateway.protocols.rsio.messages import CONTENT_TYPE

#: As `gateway.protocols.rsio` has it.
PORT: dict[str, Any] = {"http2": CONTENT_TYPE, "mixed": True}
HELLO, ANSWER = b"\x01\x00\x00", b"\x02\x00\x00"


def greets(connection: Any, data: bytes) -> None:
    connection.write(ANSWER)


def test_curl_speaks_it_over_http2(with_reactor):
    """A published client: curl, whose POST goes on while the answer comes, is greeted,
    asked for events and answered; both ends are clean.
    """
    result = with_reactor(
        """
        import subprocess
        from gateway.protocols.rsio.options import Options
        from gateway.protocols.rsio.server import RsioListener as rsio
        from gateway.testing import ManualJournal
        from gateway_testkit.settings import settings

        def talk():
            accept = rsio(settings(Options, window=2), ManualJournal(), reactor)
            port = Port(accept=accept, http2="application/rs-io", mixed=True)
            listener = serve(port, protocol="rsio")
            curl = subprocess.Popen(
                [os.environ["CURL"], "-sSN", "--http2-prior-knowledge", "-X", "POST",
                 "-T", ".", "-H", "content-type: application/rs-io",
                 "http://%s:%d/any" % where(listener)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            curl.stdin.write(bytes.fromhex("010000"))
            curl.stdin.flush()
            heard = b""
            while b"events" not in heard:
                heard += os.read(curl.stdout.fileno(), 99)
            curl.stdin.write(bytes.fromhex("0300"))
            curl.stdin.flush()
            while not heard.endswith(bytes.fromhex("0300")):
                heard += os.read(curl.stdout.fileno(), 99)
            curl.stdin.close()
            result["status"] = curl.wait()
            result["heard"] = heard.hex(" ")
            until(lambda: not listener.connections)
            in_reactor(listener.stop)
        """,
        CURL=programs.program("curl"),
    )
    hello, _, subscribe = result["heard"].partition(" 10 ")
    assert hello.startswith("02 00")
    assert subscribe == "06 65 76 65 6e 74 73 01 02 03 00"
    assert result["status"] == 0


def test_the_definitions_example_of_http2(make_net):
    """The octets of docs/rsio-v0.md open a stream, and its hello is heard and answered."""
    page = (Path(__file__).parents[2] / "docs" / "rsio-v0.md").read_text()
    example = page.partition("Over HTTP/2, without TLS")[2].partition("## Vectors")[0]
    lines = re.findall(r"(C → S|S → C) {2}((?:[0-9a-f]{2} )+)", example)
    said = b"".join(bytes.fromhex(octets) for who, octets in lines if who == "C → S")
    [answer] = [bytes.fromhex(octets) for who, octets in lines if who == "S → C"]
    net = make_net(greets, PORT, protocol="rsio")
    peer = net.peer()
    peer.send(said)
    assert net.server.data == HELLO
    assert peer.got().endswith(answer)
