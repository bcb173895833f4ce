"""The RS.io client in JavaScript (`clients/js/`): judged by the kit, and with a daemon.

Its own tests `make test-clients` runs.
"""

import http.server
import json
import re
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

import kit
import planted
import programs
from daemons import listener, tls
from deadlines import environment, eventually, finish, run
from making import Make

ROOT = Path(__file__).parents[2]
PROJECT = ROOT / "clients" / "js"
COUNT = 16_000

pytestmark = pytest.mark.needs_node


@pytest.fixture(scope="session")
def node() -> str:
    """Where that is missing, the tests are skipped; in CI they fail."""
    return programs.program("node")


@pytest.fixture
def program(node) -> Iterator[Make[subprocess.Popen[str]]]:
    """Start a program of the client's tests; it is killed at the end."""
    with programs.running() as start:
        yield lambda name, *words, **more: start(
            *(node, PROJECT / "test" / name, *words),
            stderr=subprocess.PIPE,
            env={**environment(), **more},
        )


def test_the_kit_judges_it(program):
    """As publisher and as subscriber its session passes all tests, and none is left out."""
    served = program("small-server.js", HELLO_MS="1500")
    assert kit.failures(served, hello_seconds=1.5) == []


@pytest.mark.slow
def test_the_kit_notices_faults(program, tmp_path):
    """Each fault that is planted in its session fails the test that names it."""
    parts = ("package.json", "src", "test/small-server.js")
    serve = partial(program, "planted.js")
    assert planted.unnoticed("js", tmp_path, PROJECT, parts, serve) == []


@pytest.mark.slow
def test_with_a_daemon_that_is_killed(prepare, free_port, program):
    """A sender, a reader, a kill -9, and a second sender of that name, which fences the
    first: all that the second sends is stored once, behind what the first has stored.
    """
    where = f"127.0.0.1:{free_port()}"
    daemon = prepare(
        listeners=[{**kit.STREAMS, "listen": f"tcp:{where}"}],
        journal={"commit_interval": "5ms"},
    ).start()
    first = program("tool.js", "send", f"tcp://{where}", "meter-17", COUNT)

    def stored() -> int:
        return int(daemon.status()["journal"]["durable_lsn"])

    eventually(lambda: stored() > 300, "it sends")
    daemon.restart()
    eventually(lambda: stored() > 1000, "it goes on")
    second = program("tool.js", "send", f"tcp://{where}", "meter-17", COUNT)
    _, errors = finish(first)
    assert first.returncode == 3, errors
    assert "E412" in errors
    told = int(errors.split()[-2])
    output, errors = finish(second)
    assert second.returncode == 0, errors
    assert output == f"{COUNT} acknowledged\n"
    whole = stored()
    reader = program("tool.js", "receive", f"tcp://{where}", "events?from=1", whole)
    output, errors = finish(reader)
    assert reader.returncode == 0, errors
    events = [json.loads(line) for line in output.splitlines()]
    earlier = whole - COUNT
    assert earlier >= told
    numbers = [event["payload"]["n"] for event in events]
    assert numbers == [*range(earlier), *range(COUNT)]
    assert [event["seq"] for event in events] == list(range(1, whole + 1))


EACH = 2000
WAYS = {
    "tcp": ("send", "tcp://localhost:{plain}", {"COMPRESSED": "yes"}),
    "tls": ("pack", "tls://localhost:{sealed}", {}),
    "wss": ("send", "wss://localhost:{sealed}/rsio", {}),
}
WEBSOCKET = "--experimental-websocket"
"""What Node has it by from 20.10 on; from 22 on it has it anyway."""


@pytest.mark.slow
def test_over_every_transport(start, authority, node, program):
    """What goes over TCP in blocks, packed over TLS, and over WebSocket with TLS where Node
    has that, is stored once and in order; a server whose certificate nobody signed gets
    nothing.
    """
    sealed = {"tls": tls(authority.issue("localhost")), "websocket": {"path": "/rsio"}}
    daemon = start(
        listeners=[
            listener("plain", "rsio", options={"publish": ["events"]}),
            listener("sealed", "rsio", **sealed),
        ]
    )
    ports = {name: daemon.address(name)[1] for name in ("plain", "sealed")}
    ways = dict(WAYS)
    web = (
        run(node, WEBSOCKET, "--print", "typeof WebSocket").stdout.strip() == "function"
    )
    if not web:
        del ways["wss"]
    trusts = {"CA": authority.ca, "NODE_EXTRA_CA_CERTS": authority.ca}
    trusts |= {"NODE_OPTIONS": WEBSOCKET} if web else {}
    running = [
        program("tool.js", how, where.format(**ports), name, EACH, **trusts, **extra)
        for name, (how, where, extra) in ways.items()
    ]
    for one in running:
        output, errors = finish(one)
        assert one.returncode == 0, errors
        assert output == f"{EACH} acknowledged\n"
    where = WAYS["tls"][1].format(**ports)
    stranger = program("tool.js", "receive", where, "events?from=1", 1)
    none = re.compile("sealed: .* 0 events")
    eventually(
        lambda: len(none.findall(daemon.log)) > 1, "it says nothing, again and again"
    )
    assert stranger.poll() is None
    stranger.kill()
    assert stranger.communicate()[0] == ""
    kit.sent_in_order(daemon, len(ways), EACH)


SENDS = f"""
import("/clients/js/src/index.js").then(async ({{ Rsio }}) => {{
    const sender = Rsio.at("GATEWAY", {{ name: "page", compress: true }}).sender();
    await sender.sendAll(Array.from({{ length: {EACH} }}, (_, n) => `{{"n":${{n}}}}`));
    await sender.close();
    return sender.acknowledged;
}})
"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files, and says nothing."""

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def site() -> Iterator[str]:
    """The repository on a port, as its examples are served."""
    serves = partial(Quiet, directory=str(ROOT))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), serves) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.slow
def test_a_browser_watches(start, chromium, site, authority, program):
    """The page of examples/live shows each event as a row, the latest first, over a
    WebSocket, what a browser sends in blocks over one with TLS as well; it says goodbye to
    what it watched before, and why nothing comes.
    """
    options = {"publish": ["tap"]}
    websocket = {"path": "/rsio", "origins": [site]}
    sealed = {"tls": tls(authority.issue("localhost")), "websocket": websocket}
    daemon = start(
        listeners=[
            listener("streams", "rsio", options=options, websocket=websocket),
            listener("sealed", "rsio", **sealed),
        ]
    )
    chromium.trust_any()
    port = daemon.address("streams")[1]
    gateway = f"ws://127.0.0.1:{port}/rsio"
    chromium.open(f"{site}/examples/live/?where={gateway}&publisher=tap?protocol=rsio")
    watched = "document.querySelector('output').value"
    follows = "\ngateway_feed_followers 1.0\n"
    eventually(lambda: follows in daemon.get("/metrics").decode(), "it watches")
    assert chromium.look(watched) == "watching"
    sent = program("tool.js", "send", f"tcp://127.0.0.1:{port}", "meter-17", 20)
    assert finish(sent)[0] == "20 acknowledged\n"
    rows = "[...document.querySelectorAll('tbody tr')].map(row => row.innerText)"
    chromium.wait(f"({rows}).length >= 20", "it shows them")
    shown = [row.split("\t") for row in chromium.look(rows)]
    assert [row[0] for row in shown] == [str(lsn) for lsn in range(20, 0, -1)]
    assert [row[-1] for row in shown] == [f'{{"n":{n}}}' for n in reversed(range(20))]
    _, own = daemon.address("sealed")
    given = SENDS.replace("GATEWAY", f"wss://localhost:{own}/rsio")
    assert chromium.look(given) == EACH
    chromium.wait(f"({rows})[0].endsWith('{{\"n\":{EACH - 1}}}')", "it shows the last")
    daemon.settled()
    stored = [json.loads(row["payload"])["n"] for row in daemon.rows()]
    assert stored == [*range(20), *range(EACH)]
    chromium.look("document.forms[0].publisher.value = 'nothing'; 1")
    chromium.look("document.forms[0].requestSubmit(); 1")
    chromium.wait(f"{watched}.startsWith('E404')", "it says why")
    assert chromium.look(rows) == []
    assert chromium.console == [], "no errors"


@pytest.mark.smoke
def test_the_page_as_it_stands(start, node, tmp_path):
    """The programs of docs/rsio.md run."""
    installed = tmp_path / "node_modules" / "rsio-client"
    installed.parent.mkdir()
    installed.symlink_to(PROJECT)

    def execute(number: int, text: str) -> subprocess.CompletedProcess[str]:
        file = tmp_path / f"{number}.mjs"
        file.write_text(text)
        return run(node, file)

    kit.page_runs(start(listeners=[kit.STREAMS]), "js", execute)
