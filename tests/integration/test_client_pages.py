"""Blocks of docs/clients/, run as they stand but for the gateway's address."""

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import fenced
from deadlines import environment, run
from gateway_testkit.daemon import listener
from making import Make
from pomelo_npm import library, packages
from wheels import Environment

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "clients"


def blocks(page: str, language: str) -> list[str]:
    return [one.text for one in fenced.blocks(PAGES / f"{page}.md", language)]


def daemon_of(page: str, start: Make, folder: Path) -> Any:
    """A daemon with the listener of a page, on a port of its own; its secrets are `s3cret`."""
    secret = folder / "secret"
    secret.write_text("s3cret")
    text = re.sub(r"/run/secrets/[\w-]+", str(secret), blocks(page, "yaml")[0])
    [listener] = yaml.safe_load(text)["listeners"]
    return start(listeners=[{**listener, "listen": "tcp:127.0.0.1:0"}])


TELLS = """
for (const level of ["info", "debug", "warn", "error"]) console[level] = () => {};
console.log = said => {
  if (said && said.code) process.stdout.write(JSON.stringify(said), () => process.exit(0));
};
process.env.GAME_TOKEN = "s3cret";
"""


@pytest.mark.needs_npm
@pytest.mark.smoke
def test_pomelo(start, npm, tmp_path):
    """The program for browsers, and that for Node, hear that their request is stored."""
    _, port = daemon_of("pomelo", start, tmp_path).address("game")
    program = npm(*packages())
    browser, node = (
        text.replace('"gw.example", port: 3010', f'"127.0.0.1", port: {port}')
        for text in blocks("pomelo", "js")
    )
    page = 'const pomelo = clients["pomelo-jsclient-websocket"](), token = "s3cret";\n'
    loaded = library()
    assert json.loads(program(loaded + TELLS + page + browser)) == {"code": 200}
    assert json.loads(program(TELLS + node)) == {"code": 200}


@pytest.mark.slow
def test_rsio(start, tmp_path):
    """The program sends, and so does the line for a shell; both are stored."""
    daemon = daemon_of("rsio", start, tmp_path)
    _, port = daemon.address("streams")
    [program] = blocks("rsio", "python")
    here = Environment(tmp_path / "venv")
    here.install(ROOT / "packages" / "rsio-client")
    text = program.replace('"gw.example", 7400', f'"127.0.0.1", {port}')
    done = here.run(
        here.python, "-c", f'import os; os.environ["TOKEN"] = "s3cret"\n{text}'
    )
    assert done.returncode == 0, done.stderr
    (tmp_path / "readings.ndjson").write_text('{"kWh": 18}\n{"kWh": 19}\n')
    [line] = blocks("rsio", "sh")
    line = line.replace("gw.example:7400", f"127.0.0.1:{port}")
    env = {**environment(), "TOKEN": "s3cret", "PATH": _with_gateway()}
    done = run("sh", "-ec", line, cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stderr
    daemon.settled()
    stored = [json.loads(row["payload"])["kWh"] for row in daemon.rows()]
    assert stored == [17.5, 18, 19]


def test_python_logging(start, tmp_path):
    """A record of the handler, with its queue in a file, and an event of the other program."""
    daemon = start(listeners=[listener("beats", "lumberjack")])
    _, port = daemon.address("beats")
    for shown in blocks("python-logging", "python"):
        here = shown.replace('"gw.example", 5044', f'"127.0.0.1", {port}')
        text = here.replace("/var/lib/shop/log.db", str(tmp_path / "log.db"))
        done = run(sys.executable, "-c", text)
        assert done.returncode == 0, done.stderr
    daemon.settled()
    said = [json.loads(row["payload"]) for row in daemon.rows()]
    assert [one["message"] for one in said] == ["order 17 is late", "hello"]
    assert said[0]["extra"]["order"] == 17


@pytest.mark.smoke
@pytest.mark.parametrize("page", ["docs/clients/pravega.md", "docs/pravega.md"])
def test_pravega(serve, pravega_client, page):
    """The program of the clients' page, and that of docs/pravega.md, which reads as well."""
    streams = serve()
    [program] = fenced.blocks(page, "python")
    text = re.sub(
        r"//[\w.]+:9090", f"//127.0.0.1:{streams.controller_port}", program.text
    )
    done = run(sys.executable, "-c", text)
    assert done.returncode == 0, done.stderr
    assert streams.payloads("orders") == [b'{"order": 17}']
    assert ("17" in done.stdout) == (page == "docs/pravega.md")


def _with_gateway() -> str:
    """A PATH on which `gateway` is."""
    return f"{Path(sys.executable).parent}:{os.environ['PATH']}"
