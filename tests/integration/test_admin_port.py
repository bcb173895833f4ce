"""The admin port by TLS and by a unix socket, as docs/operations.md has it: with curl."""

import datetime as dt
import json
import re
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import deadlines
from daemons import Daemon, free_port, tls

PAGE = Path(__file__).parents[2] / "docs" / "operations.md"
SECTION = PAGE.read_text().partition("### By TLS, and by a unix socket\n")[2]
SECTION = SECTION.partition("\n## ")[0]
VALID = dt.timedelta(days=90)
BLOCKS = re.findall(r"```(yaml|sh)\n(.*?)```", SECTION, re.DOTALL)


def written(number: int) -> tuple[dict[str, Any], list[str]]:
    """The section `admin` and the lines of one of the two ways."""
    (kind, settings), (shell, lines) = BLOCKS[2 * number : 2 * number + 2]
    assert (kind, shell) == ("yaml", "sh")
    return yaml.safe_load(settings)["admin"], lines.splitlines()


def say(line: str, home: Path, **replaced: str) -> str:
    """What a line of the page prints; it must succeed."""
    for old, new in replaced.items():
        assert old
        line = line.replace(old, new)
    program, *words = shlex.split(line)
    found = shutil.which(program, path=f"{Path(sys.executable).parent}:/usr/bin")
    assert found is not None, program
    more = ["--fail-with-body", "--silent", "--show-error"] if program == "curl" else []
    done = deadlines.run(found, *more, *words, cwd=home)
    assert done.returncode == 0, (line, done.stdout, done.stderr)
    return str(done.stdout)


def started(daemon: Daemon) -> Daemon:
    daemon.launch()
    daemon.eventually(lambda: "takes events" in daemon.log, "it takes events")
    return daemon


def test_by_tls(prepare, authority, tmp_path):
    """Who knows the authority is answered, with the token; plain HTTP is told why not."""
    admin, lines = written(0)
    port = str(free_port())
    (tmp_path / "token").write_text("s3cret\n")
    home = tmp_path
    daemon = prepare(
        admin={
            "listen": admin["listen"].replace("8443", port),
            "token": "s3cret",
            "tls": {**admin["tls"], **tls(authority.issue("gw", valid=VALID))},
        },
        logging={"level": "info"},
    )
    (home / "ca.pem").write_bytes(authority.ca.read_bytes())
    started(daemon)
    said = [say(line, home, **{"8443": port, "$TOKEN": "s3cret"}) for line in lines]
    assert said[0] == "ready\n"
    assert json.loads(said[1])["node"] == "gw-1"
    assert "node     gw-1" in said[2]
    by_file = f"gateway status --config {daemon.config}"
    assert "node     gw-1" in say(by_file, home)
    plain = f"curl --http0.9 http://localhost:{port}/readyz"
    with pytest.raises(
        AssertionError, match="an HTTP request on a port that speaks TLS"
    ):
        say(plain, home)
    renewed = authority.issue("gw", valid=VALID)
    assert renewed.certificate.exists()
    assert "reloaded" in say(f"gateway reload --config {daemon.config}", home)
    assert "admin: certificate reloaded from" in daemon.log
    assert say(lines[0].replace("8443", port), home) == "ready\n"


@pytest.mark.slow
def test_the_live_page_over_tls(prepare, authority, chromium):
    """A browser that is given the token sees it live, and nothing is refused to it."""
    pair = authority.issue("gw", valid=VALID)
    daemon = prepare(admin={"tls": tls(pair), "token": "s3cret"})
    started(daemon)
    chromium.trust_any()
    chromium.open(f"https://any:s3cret@{daemon.admin}/")
    sentence = "(document.getElementById('sentence')?.textContent ?? '')"
    chromium.wait(f"{sentence}.startsWith('Nothing has ever come')", "the first word")
    assert all(f"//{daemon.admin}/" in one.replace("any:s3cret@", "")
               for one in chromium.requested)  # fmt: skip
    assert chromium.console == []


def test_by_a_unix_socket(prepare, tmp_path):
    """Whom its file lets in may do all, without a token."""
    admin, lines = written(1)
    path = tmp_path / "admin.sock"
    where = admin["listen"].removeprefix("unix:")
    daemon = started(
        prepare(
            admin={"listen": f"unix:{path}", "trust_loopback": False},
            logging={"level": "info"},
        )
    )
    said = [say(line, tmp_path, **{where: str(path)}) for line in lines]
    assert said[0] == "ready\n"
    assert json.loads(said[1])["applied"] is True
    assert "node     gw-1" in said[2]
    daemon.terminate()
    assert not path.exists()
