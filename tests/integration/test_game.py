"""examples/game, whole: gateway, service, Spark, and the published client in two tabs."""

import contextlib
import json
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.request import Request

import pytest

from daemons import Daemon, free_port, spawn
from deadlines import ROOT, eventually, excerpt

GAME = ROOT / "examples" / "game"

pytestmark = [
    pytest.mark.needs_npm,
    pytest.mark.needs_apt,
    pytest.mark.spark,
    pytest.mark.slow,
]


class Example(Daemon):
    """A gateway with the example's own configuration, on other ports."""

    begin_service_again: Callable[[], None]
    """Kill the service, and begin it anew."""

    def __init__(self, home: Path) -> None:
        super().__init__(home, {})
        ports = {"3010": free_port(), "9000": free_port(), "8080": self.admin[10:]}
        text = (GAME / "gateway.yaml").read_text()
        for usual, other in ports.items():
            text = text.replace(f":{usual}", f":{other}")
        self.config.write_text(text)
        self.page = f"http://127.0.0.1:{ports['9000']}/?port={ports['3010']}"

    def board(self) -> Counter[str]:
        """How many fields of the lobby each player has, as the service tells it."""
        asked = {"route": "room.enter", "uid": "eve", "session": "s", "lsn": 1}
        request = {"requests": [{**asked, "body": {"room": "lobby"}}]}
        [answer] = json.loads(
            self.answer(Request(self.page, json.dumps(request).encode()))
        )["answers"]
        return Counter(player for _, _, player in answer["board"])

    def has_page(self) -> bool:
        """The service is there."""
        with contextlib.suppress(OSError):
            return b"<title>Splash</title>" in self.answer(self.page)
        return False


@pytest.fixture
def example(tmp_path) -> Iterator[Example]:
    """A copy of the example with what its README starts: the three programs."""
    home = tmp_path / "game"
    shutil.copytree(
        GAME, home, ignore=shutil.ignore_patterns("node_modules", "data", "__pycache__")
    )
    started: list[subprocess.Popen[bytes]] = []
    with Example(home) as daemon:

        def begin(program: str) -> None:
            command = [sys.executable, program, str(daemon.config)]
            started.append(spawn(command, home / f"{program}.log", session=True))

        def begin_again() -> None:
            started[0].kill()
            started.pop(0).wait()
            begin("backend.py")
            eventually(daemon.has_page, "the service again")

        daemon.begin_service_again = begin_again
        begin("backend.py")
        begin("leaderboard.py")
        eventually(daemon.has_page, "the service")
        yield daemon
        for process in started:
            process.send_signal(signal.SIGTERM)
        for process in started:
            process.wait()
    for log in home.glob("*.log"):
        print(f"--- {log.name}\n{excerpt(log)}")


def test_two_players_and_a_leaderboard(npm, browse, example):
    """They see each other's splashes and hear what is said; in the end the count on both
    screens, which Spark made of the table, is that of the board.  A service that was killed
    has it again.
    """
    web = example.config.parent / "web"
    packages = json.loads((web / "package.json").read_text())["dependencies"]
    node = npm(
        *(f"{name}@{version}" for name, version in packages.items()), "ws@8.18.0"
    )
    modules = node("console.log(__dirname)").strip()
    (web / "node_modules").symlink_to(Path(modules) / "node_modules")

    devtools = browse("about:blank") / "DevToolsActivePort"
    eventually(lambda: devtools.exists() and devtools.read_text(), "the browser")
    port = devtools.read_text().split()[0]
    program = Path(__file__).with_name("game_players.js").read_text()
    said = json.loads(node(program, port, example.page, web))

    ada, grace = said["ada"], said["grace"]
    assert ada == grace
    assert ada["leaders"] == ada["held"] == {"ada": 25, "grace": 25}
    assert ada["chat"] == ["grace: hello <b>ada</b> 👋", "ada: that was mine!"]
    example.begin_service_again()
    assert example.board() == ada["held"]
    for name in said:
        assert (web / f"{name}.png").stat().st_size > 10_000
