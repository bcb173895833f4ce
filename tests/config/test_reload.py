"""What a reload makes of each key: the types say it, docs/reload.md shows it."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pydantic import Field

from gateway import config
from gateway.config import reload
from gateway.config.listener import Listener
from gateway.sdk.section import NEW_CONNECTIONS, Section, restart

PAGE = Path(__file__).parents[2] / "docs" / "reload.md"

Load = Callable[[str], config.Config]


@pytest.fixture
def load(tmp_path) -> Load:
    """A configuration of this YAML; `listeners` are added if it has none."""

    def load_text(text: str) -> config.Config:
        if "listeners" not in text:
            text += "\nlisteners: [{name: a, protocol: lumberjack, listen: tcp:1}]"
        file = tmp_path / "gateway.yaml"
        file.write_text(f"node: gw\n{text}" if "node" not in text else text)
        return config.load(file)

    return load_text


def test_the_page_has_every_key():
    """As the types have it; `python -m gateway.config.reload` prints it."""
    done = subprocess.run(
        [sys.executable, "-m", "gateway.config.reload"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == reload.table()
    assert PAGE.read_text().endswith(f"\n\n{reload.table()}")


def test_every_restart_has_its_reason():
    """`needs a restart, because …`; and only our own keys are in the table."""
    rules = dict(reload.rules())
    assert len(rules) > 100
    for key, rule in rules.items():
        assert bool(rule.why) == (rule.when == "restart"), key
        assert "does not say" not in rule.why, key
    assert rules["listeners[].tls.certificate"].when == "new connections"
    assert rules["pomelo: options.backends[].url"].when == "new connections"
    assert rules["spool.retention"].when == "yes"


def test_what_needs_a_restart_stays(load):
    """The plan's configuration has the old value of it and the new one of the rest."""
    running = load("journal: {directory: one, commit_interval: 1ms}")
    wanted = load("journal: {directory: two, commit_interval: 3ms}\nspark: {ui: true}")
    found = reload.plan(running, wanted, {"lumberjack": running.listeners})
    assert found.effective.journal.directory == Path("one")
    assert found.effective.journal.commit_interval == 0.003
    assert found.changed == ["journal.commit_interval"]
    assert found.restart == [
        "journal.directory: needs a restart, because the journal is open there"
    ]
    assert found.job == ["spark.ui"]
    again = reload.plan(found.effective, wanted, {"lumberjack": running.listeners})
    assert (again.changed, again.job) == ([], [])
    assert again.restart == found.restart


def test_secrets_are_compared_and_not_told(load):
    running, wanted = load("admin: {token: old}"), load("admin: {token: new}")
    found = reload.plan(running, wanted, {})
    assert found.changed[0] == "admin.token"
    assert found.effective.admin == wanted.admin


def test_listeners_are_known_by_name_and_protocol(load):
    """The others come and go; what comes may need a service that is not there."""
    running = load(
        "listeners:\n- {name: a, protocol: lumberjack, listen: tcp:1}\n"
        "- {name: b, protocol: pravega, listen: tcp:2, options: {writers: 7}}"
    )
    wanted = load(
        "listeners:\n- {name: a, protocol: pomelo, listen: tcp:1}\n"
        "- {name: b, protocol: pravega, listen: tcp:2, options: {segments: 5}}\n"
        "- {name: c, protocol: pravega, listen: tcp:3, options: {segments: 5}}\n"
        "- {name: d, protocol: rsio, listen: tcp:4}"
    )
    served = {"lumberjack": running.listeners[:1], "pravega": running.listeners[1:]}
    found = reload.plan(running, wanted, served)
    container = "all listeners share one container, which begins with it"
    memory = "what its protocol remembers is read when the daemon starts"
    assert found.changed == [
        "listeners: a is new",
        "listeners: b.options.writers",
        "listeners: a is gone",
    ]
    assert found.restart == [
        f"listeners: b.options.segments: needs a restart, because {container}",
        f"listeners: c.options.segments: needs a restart, because {container}",
        f"listeners: d: needs a restart, because {memory}",
    ]
    assert [one.name for one in found.effective.listeners] == ["a", "b"]
    assert found.effective.listeners[1].options.segments == 100_000  # type: ignore[attr-defined]


def test_options_of_plug_ins_are_careful(load):
    """Without a word of theirs a changed option is a restart; with it, it is not."""

    class Unsaid(Section):
        depth: int = Field(default=1, description="")

    class Said(Unsaid):
        reload: ClassVar = NEW_CONNECTIONS
        reloads: ClassVar = {"width": restart("of a wall")}
        width: int = Field(default=1, description="")

    def changed(**values: Any) -> reload.Plan:
        kind = values.pop("kind")
        running = load("")
        one = running.listeners[0]

        def having(options: Section) -> config.Config:
            listener: Listener = one.model_copy(update={"options": options})
            return running.model_copy(update={"listeners": [listener]})

        return reload.plan(having(kind()), having(kind(**values)), {})

    unsaid = "its protocol does not say that it may change"
    assert changed(kind=Unsaid, depth=2).restart == [
        f"listeners: a.options.depth: needs a restart, because {unsaid}"
    ]
    found = changed(kind=Said, depth=2, width=3)
    assert found.changed == ["listeners: a.options.depth"]
    assert found.restart == [
        "listeners: a.options.width: needs a restart, because of a wall"
    ]


def test_what_has_to_wait_takes_nobodys_place(load):
    """Senders go on with the listener that is there, whose name or port the new one has."""
    running = load(
        "listeners:\n- {name: a, protocol: lumberjack, listen: tcp:1}\n"
        "- {name: b, protocol: lumberjack, listen: tcp:2}\n"
        "- {name: c, protocol: lumberjack, listen: tcp:3}"
    )
    wanted = load(
        "listeners:\n- {name: a, protocol: rsio, listen: tcp:1}\n"
        "- {name: new, protocol: rsio, listen: tcp:2}\n"
        "- {name: d, protocol: rsio, listen: tcp:4}"
    )
    found = reload.plan(running, wanted, {"lumberjack": running.listeners})
    assert found.effective.listeners == running.listeners[:2]
    assert found.changed == ["listeners: c is gone"]
    assert len(found.restart) == 3
