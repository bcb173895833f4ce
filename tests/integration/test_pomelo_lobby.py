"""Three real daemons that are one lobby, with a published Pomelo client on each, over TLS."""

import json
import ssl
import urllib.request
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from daemons import Daemon, free_port, listener, tls
from deadlines import eventually
from making import Make
from pomelo_npm import packages, program_of

pytestmark = pytest.mark.needs_npm

CLIENTS = {
    "gw-1": ("pomelo-jsclient-websocket", "alice"),
    "gw-2": ("pinus-robot-plugin", "bob"),
    "gw-3": ("pomelo-jsclient-websocket", "alice"),
}
TOKEN = "t0k"


class Gateways:
    """They have one list of admin addresses, and clients without proof.

    The admin port of the third has TLS and a token.
    """

    def __init__(self, prepare: Make[Daemon], ca: Path, pair: Any) -> None:
        self._tls = ssl.create_default_context(cafile=ca)
        ports = {name: free_port() for name in CLIENTS}
        self.urls = {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}
        self.urls["gw-3"] = self.urls["gw-3"].replace("http:", "https:")
        self.daemons: dict[str, Daemon] = {}
        for name, port in ports.items():
            lobby = {"gateways": list(self.urls.values()), "token": TOKEN}
            lobby["ca"] = str(ca)
            if name == "gw-2":
                lobby["token"] = "another"
            options: dict[str, Any] = {"trust_uid": True, "lobby": lobby}
            if name == "gw-1":
                options["outbox"] = {"directory": "outbox"}
            admin: dict[str, Any] = {"listen": f"tcp:127.0.0.1:{port}"}
            if name == "gw-3":
                admin |= {"token": TOKEN, "tls": tls(pair)}
            game = listener(
                "game",
                "pomelo",
                websocket={"path": "/"},
                tls=tls(pair),
                options=options,
            )
            daemon = prepare(name, node=name, admin=admin, listeners=[game])
            daemon.admin = f"127.0.0.1:{port}"
            self.daemons[name] = daemon
        for daemon in self.daemons.values():
            daemon.launch()
        for name in self.daemons:
            self.ready(name)

    def ready(self, name: str) -> None:
        """It takes connections."""
        url = f"{self.urls[name]}/readyz"

        def ready() -> bool:
            try:
                return self._said(url) == b"ready\n"
            except OSError:
                return False

        eventually(ready, f"{name} is ready")

    def _said(self, request: str | urllib.request.Request) -> bytes:
        with urllib.request.urlopen(request, context=self._tls) as answer:
            found: bytes = answer.read()
            return found

    def port(self, name: str) -> int:
        """Of its listener, as its log has it."""
        request = urllib.request.Request(
            f"{self.urls[name]}/api/status",
            headers={"Authorization": f"Bearer {TOKEN}"},
        )
        status = json.loads(self._said(request))
        address: str = status["listeners"][0]["address"]
        return int(address.rpartition(":")[2])

    def ask(self, name: str, what: str, **asked: Any) -> Any:
        request = urllib.request.Request(
            f"{self.urls[name]}/api/{what}",
            json.dumps(asked).encode(),
            {"Content-Type": "application/json"},
        )
        return json.loads(self._said(request))


def by_gateway(told: Any, what: str = "sent") -> dict[str, Any]:
    """How many clients of each; or its error, by its address."""
    return {
        each.get("gateway") or each["at"]: each.get("error") or each[what]
        for each in told["gateways"]
    }


def test_a_lobby_of_three(npm, prepare, authority, server_pair):
    """A push, a group, a row of the outbox and a kick find their clients wherever they
    are, each once; who has another token, or is killed, is told of; a gateway that comes
    back is in it again.
    """
    gateways = Gateways(prepare, authority.ca, server_pair)
    run = npm(*packages())
    program = program_of("pomelo_lobby", authority.ca)
    with ThreadPoolExecutor(len(CLIENTS)) as threads:
        playing = {
            name: threads.submit(run, program, client, gateways.port(name), uid)
            for name, (client, uid) in CLIENTS.items()
        }

        def push(name: str, route: str, **to: Any) -> Any:
            return gateways.ask(name, "push", route=route, body={"n": 1}, **to)

        eventually(
            lambda: push("gw-1", "onProbe", all=True)["sent"] == 3, "all are connected"
        )
        assert by_gateway(push("gw-1", "onScore", uid="alice")) == {
            "gw-1": 1,
            "gw-2": 0,
            "gw-3": 1,
        }
        told = by_gateway(push("gw-2", "onScore", uid="alice"))
        error = "answers 401: options.lobby.token must be its admin.token"
        assert told == {"gw-2": 0, "gw-1": 1, gateways.urls["gw-3"]: error}

        room = gateways.ask("gw-1", "group", join="room", uid="alice")
        assert by_gateway(room, "changed") == {"gw-1": 1, "gw-2": 0, "gw-3": 1}
        assert push("gw-1", "onRoom", group="room")["sent"] == 2

        outbox = gateways.daemons["gw-1"].data / "outbox"
        rows = [
            {"route": "onRow", "body": {"n": 1}, "uid": uid} for uid in ("alice", "bob")
        ]
        rows += [{"route": "onRow", "body": {"n": 2}, "all": True}]
        hidden = outbox / ".rows.json"
        hidden.write_text("".join(json.dumps(row) + "\n" for row in rows))
        hidden.rename(outbox / "rows.json")

        def of_one() -> Any:
            return gateways.daemons["gw-1"].status()["pushes"]

        eventually(lambda: of_one()["outbox_rows"]["pushed"] == 3, "the file is pushed")

        gateways.daemons["gw-3"].kill()
        told = by_gateway(push("gw-1", "onAfter", all=True))
        assert {name: told[name] for name in ("gw-1", "gw-2")} == {"gw-1": 1, "gw-2": 1}
        assert "refused" in told[gateways.urls["gw-3"]]
        assert of_one()["lobby_away"] == 1

        kicked = gateways.ask("gw-1", "kick", uid="alice")
        assert kicked["kicked"] == 1

        gateways.daemons["gw-3"].launch()
        gateways.ready("gw-3")
        assert by_gateway(push("gw-1", "onEnd", all=True)) == {
            "gw-1": 0,
            "gw-2": 1,
            "gw-3": 0,
        }
        heard = {
            name: Counter(json.loads(line)[0] for line in one.result().splitlines())
            for name, one in playing.items()
        }
    for said in heard.values():
        assert said.pop("onProbe") >= 1
    assert heard == {
        "gw-1": {"onScore": 2, "onRoom": 1, "onRow": 2, "onAfter": 1, "kick": 1},
        "gw-2": {"onRow": 2, "onAfter": 1, "onEnd": 1},
        "gw-3": {"onScore": 1, "onRoom": 1, "onRow": 2, "close": 1},
    }
    assert all("Traceback" not in one.log for one in gateways.daemons.values())
