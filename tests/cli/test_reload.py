"""`gateway reload`, with an admin port that answers as the test says."""

import contextlib
import json
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway import cli
from gateway.store.system.lock import lock
from making import Make
from small_http import Asked, SmallHttp

FINE = {"applied": True, "problems": [], "changed": [], "restart": [], "job": []}


class AdminPort:
    """Answers requests, and keeps them."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, str | None]] = []
        self.answer: Callable[[str, str | None], tuple[int, Any]] = lambda *_: (
            200,
            FINE,
        )
        self.server = SmallHttp(self._answer)

    def _answer(self, asked: Asked) -> tuple[int, Any]:
        token = asked.headers["Authorization"]
        self.asked.append((asked.method, asked.path, token))
        return self.answer(asked.path, token)


@pytest.fixture
def admin() -> Iterator[AdminPort]:
    port = AdminPort()
    with port.server:
        yield port


@pytest.fixture
def reload(admin, tmp_path) -> Make[int]:
    """Run it, with more of a configuration."""

    def run(*arguments: str, more: str = "", token: str = "null") -> int:
        file = tmp_path / "gateway.yaml"
        where = f"tcp:127.0.0.1:{admin.server.port}"
        file.write_text(
            f"data_dir: {tmp_path}\nadmin: {{listen: '{where}', token: {token}}}\n"
            "listeners: [{name: a, protocol: lumberjack, listen: tcp:1}]\n" + more
        )
        return cli.main(["reload", "--config", str(file), *arguments])

    return run


def test_what_changed_is_told(admin, reload, capsys):
    """And what did not, with its reason; that is no failure."""
    told = {"changed": ["spool.retention"], "restart": ["node: …"], "job": ["spark.ui"]}
    admin.answer = lambda *_: (200, {**FINE, **told})
    assert reload(token="geheim") == 0
    assert capsys.readouterr().out == (
        "reloaded; changed: spool.retention\n  node: …\n"
        "  for the Spark job, when it starts again: spark.ui\n"
    )
    assert admin.asked == [("POST", "/api/reload", "Bearer geheim")]
    assert reload("--json") == 0
    assert json.loads(capsys.readouterr().out) == {**FINE, **told}


def test_a_refused_reload_is_a_failure(admin, reload, capsys):
    """With the daemon's reasons."""
    admin.answer = lambda *_: (409, {**FINE, "applied": False, "problems": ["taken"]})
    assert reload() == 1
    assert capsys.readouterr().err == "taken\nnot reloaded: nothing has changed\n"


def test_a_broken_certificate_is_a_failure(admin, reload, capsys):
    """Though all else has changed."""
    admin.answer = lambda *_: (200, {**FINE, "problems": ["old one stays"]})
    assert reload() == 1
    said = capsys.readouterr()
    assert said.out == "reloaded; changed: nothing\n"
    assert said.err == "  old one stays\n"


def test_a_broken_file_is_not_sent(admin, reload, capsys):
    """Its mistakes are told with their places, and the daemon is not asked."""
    assert reload(more="jurnal: {}\n") == 1
    said = capsys.readouterr().err
    assert "gateway.yaml: jurnal: unknown key" in said
    assert "(line 4)" in said
    assert "nothing has changed" in said
    assert admin.asked == []
    assert cli.main(["reload", "--config", "/no/such/file"]) == 2


def test_nobody_is_there(admin, reload, capsys):
    """It says where it asked."""
    admin.server.close()
    assert reload() == 1
    assert "nobody reloads at tcp:127.0.0.1:" in capsys.readouterr().err


@contextlib.contextmanager
def daemon(data: Path, hang_up: Make[None]) -> Iterator[None]:
    """This process is the one that has the lock, and gets SIGHUP."""
    held = lock(data / "lock", "gateway gw")
    before = signal.signal(signal.SIGHUP, hang_up)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)
        held.release()


def test_a_new_token_is_taken_by_signal(admin, reload, tmp_path, capsys):
    """The daemon has the old one, and the new one once it has reloaded.  A reload that
    was under way when it was asked ends first, and is not what is told.
    """
    token, asked = "old", 0.0
    told: list[float] = []

    def answer(path: str, given: str | None) -> tuple[int, Any]:
        if given != f"Bearer {token}":
            return 401, {"error": "send the token"}
        told.append(asked - 1.0 if len(told) < 3 else time.time())
        mine = {"changed": ["admin.token"], "restart": ["node: …"]}
        last = {"at": time.time(), "began": told[-1], **(mine if len(told) > 3 else {})}
        return 200, {"reload": {**FINE, **last}}

    def hang_up(*_: object) -> None:
        nonlocal token, asked
        token, asked = "new", time.time()

    admin.answer = answer
    with daemon(tmp_path, hang_up):
        assert reload(token="new") == 0
    assert capsys.readouterr().out == "reloaded; changed: admin.token\n  node: …\n"
    assert len(told) == 4


def test_a_daemon_that_does_not_say_when_it_began(admin, reload, tmp_path):
    """One of an earlier version: the end of its reload counts."""
    token = "old"

    def answer(path: str, given: str | None) -> tuple[int, Any]:
        if given != f"Bearer {token}":
            return 401, {"error": "send the token"}
        return 200, {"reload": {**FINE, "at": time.time()}}

    def hang_up(*_: object) -> None:
        nonlocal token
        token = "new"

    admin.answer = answer
    with daemon(tmp_path, hang_up):
        assert reload(token="new") == 0


def test_a_wrong_token_and_no_daemon(admin, reload, capsys):
    """No process is signalled that has no lock."""
    admin.answer = lambda *_: (401, {"error": "send the token"})
    assert reload(token="wrong") == 1
    assert "another admin.token" in capsys.readouterr().err


def test_another_data_dir(admin, reload, capsys):
    """Whose daemon nobody can signal, as that of a file in which it was changed: it says
    that this needs a restart, and nothing of tokens that there are none of.
    """
    admin.answer = lambda *_: (403, {"error": "not without a token"})
    assert reload() == 1
    said = capsys.readouterr().err
    assert "if the file names another data_dir than before, restart" in said
    assert "another admin.token" not in said


def test_the_configuration_of_the_folder_that_one_is_in(reload, tmp_path, monkeypatch):
    """As other commands take it: the gateway that `gateway run` began there is meant."""
    assert reload() == 0
    monkeypatch.chdir(tmp_path)
    assert cli.main(["reload"]) == 0
