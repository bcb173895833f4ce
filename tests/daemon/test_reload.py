"""Reloads of a whole daemon whose network is in memory: what changes, what stays, and that
nothing changes when anything is wrong."""

from typing import Any

import pytest
from twisted.internet.defer import Deferred

import gateway_syslog
from gateway import plugins
from gateway.daemon.reload import Outcome, Reloads
from memory_daemon import listener

BEATS = listener("beats", "lumberjack", 5044)
WINDOW = b"2W\0\0\0\1" + b"2J\0\0\0\1\0\0\0\2{}"


@pytest.fixture
def daemon(start) -> Any:
    """One with a Lumberjack listener."""
    return start(BEATS)


def test_nothing_changed_nothing_happens(start):
    """Sockets, listeners and connections are the ones they were."""
    daemon = start(BEATS, listener("game", "pomelo", 3010))
    before = list(daemon.running.opened.listeners)
    peer = daemon.reactor.peer(5044)
    outcome = daemon.reload()
    assert (outcome.applied, outcome.changed, outcome.problems) == (True, [], [])
    assert list(daemon.running.opened.listeners) == before
    assert not peer.said_goodbye


def test_a_listener_is_added(daemon):
    """Of a protocol that was not served before, with its pages; others notice nothing."""
    peer = daemon.reactor.peer(5044)
    daemon.write(BEATS, listener("game", "pomelo", 3010))
    assert daemon.reload().changed == ["listeners: game is new"]
    assert daemon.listeners() == [("beats", 5044, 1), ("game", 3010, 0)]
    daemon.reactor.peer(3010)
    assert "/api/sessions" in daemon.running.admin.site._pages
    assert "/api/push" in daemon.running.admin.site._posts
    assert not peer.said_goodbye


def test_a_removed_listener_drains(start):
    """Nobody is let in any more, and its peers see the end that the protocol has."""
    game = listener("game", "pomelo", 3010)
    daemon = start(BEATS, game)
    peer = daemon.reactor.peer(5044)
    daemon.write(game)
    assert daemon.reload().changed == ["listeners: beats is gone"]
    with pytest.raises(ConnectionRefusedError):
        daemon.reactor.peer(5044)
    assert peer.said_goodbye
    assert daemon.listeners() == [("game", 3010, 0)]
    peer.leave()
    assert daemon.running.opened.listeners.leaving == []


def test_what_was_submitted_to_a_removed_listener_is_acknowledged(start):
    """It is closed behind the acknowledgement, and not before."""
    game = listener("game", "pomelo", 3010)
    daemon = start(BEATS, game)
    peer = daemon.reactor.peer(5044)
    peer.send(WINDOW)
    daemon.write(game)
    daemon.reload()
    assert not peer.said_goodbye
    journal = daemon.running.opened.storage.journal
    journal.start()
    daemon.reactor.run(until=lambda: peer.said_goodbye)
    assert peer.transport.value() == b"2A\0\0\0\1"
    peer.leave()
    daemon.reactor.wait(journal.stop())


def test_changed_options_are_for_connections_that_come(daemon):
    """The socket is handed on; whoever is there keeps what he began with, and counts."""
    old = daemon.reactor.peer(5044)
    daemon.write(
        {**BEATS, "limits": {"connections": 2}, "options": {"window_events": 1}}
    )
    assert daemon.reload().changed == [
        "listeners: beats.limits.connections",
        "listeners: beats.options.window_events",
    ]
    assert daemon.reactor.bound == 1
    new = daemon.reactor.peer(5044)
    two = b"2W\0\0\0\2"
    old.send(two)
    new.send(two)
    assert (old.said_goodbye, new.said_goodbye) == (False, True)
    [status] = daemon.gateway.status().listeners
    assert (status.connections, status.bytes) == (2, 12)
    [beats] = daemon.running.opened.listeners
    assert beats.admit(None) is None, "two of two are there"
    old.leave()
    new.leave()
    assert daemon.running.opened.listeners.leaving == []
    [status] = daemon.gateway.status().listeners
    assert (status.connections, status.bytes) == (0, 12)


def test_options_of_a_plugin_change_as_it_says(start, monkeypatch):
    """For connections that come; who is there keeps the time zone he began with."""
    found = plugins.Installed({"syslog": gateway_syslog.protocol}, {})
    monkeypatch.setattr(plugins, "installed", lambda: found)
    daemon = start(listener("logs", "syslog", 601))
    old = daemon.reactor.peer(601)
    daemon.write(listener("logs", "syslog", 601, options={"timezone": "Europe/Oslo"}))
    outcome = daemon.reload()
    assert outcome.changed == ["listeners: logs.options.timezone"]
    assert outcome.restart == []
    new = daemon.reactor.peer(601)
    stored: list[bytes] = []
    journal = daemon.running.opened.storage.journal
    monkeypatch.setattr(
        journal, "submit_for", lambda _, batch: stored.append(batch.body)
    )
    for peer in (old, new):
        peer.send(b"<13>Jul  1 12:00:00 web2 shop: it is summer\n")
        peer.leave()
    assert [b"Europe/Oslo" in body for body in stored] == [False, True]


def test_limits_of_one_peer_hold_over_reloads(daemon):
    """What was accepted under other settings counts."""
    daemon.reactor.peer(5044)
    daemon.write({**BEATS, "limits": {"connections_per_peer": 1}})
    daemon.reload()
    with pytest.raises(AttributeError, match="makeConnection"):  # it is None: rejected
        daemon.reactor.peer(5044)
    assert daemon.gateway.status().listeners[0].rejected == {"connections_per_peer": 1}


def test_a_listener_that_moves(daemon):
    """The new port is open before the old one is closed, whose connections end."""
    peer = daemon.reactor.peer(5044)
    daemon.write(listener("beats", "lumberjack", 5045))
    daemon.reload()
    assert daemon.listeners() == [("beats", 5045, 1)]
    assert peer.said_goodbye
    with pytest.raises(ConnectionRefusedError):
        daemon.reactor.peer(5044)


def test_a_listener_that_moves_to_a_used_port(daemon):
    """Nothing changes: not even what else the file says."""
    peer = daemon.reactor.peer(5044)
    daemon.reactor.listenTCP(5045, None, "127.0.0.1")
    daemon.write(
        listener("other", "lumberjack", 5046),
        listener("beats", "lumberjack", 5045),
        spool={"publishers": 0, "retention": "1h"},
    )
    outcome = daemon.reload()
    assert not outcome.applied
    assert outcome.problems == [
        "listener beats: tcp:127.0.0.1:5045: Address already in use"
    ]
    assert daemon.listeners() == [("beats", 5044, 1)]
    assert not peer.said_goodbye
    with pytest.raises(ConnectionRefusedError):
        daemon.reactor.peer(5046)
    assert daemon.running.settings.spool.retention == 24 * 3600


def test_two_listeners_change_places(start):
    """Each gets the other's socket: no port is ever closed."""
    daemon = start(BEATS, listener("more", "lumberjack", 5045))
    daemon.write(
        listener("beats", "lumberjack", 5045), listener("more", "lumberjack", 5044)
    )
    assert daemon.reload().applied
    assert daemon.reactor.bound == 2
    assert daemon.listeners() == [("beats", 5045, 0), ("more", 5044, 0)]
    first = daemon.reactor.peer(5044)
    assert first.connection.origin.listener == "more"


def test_a_listener_gets_another_protocol(daemon):
    """On the same socket; connections of the old protocol end as that one does."""
    peer = daemon.reactor.peer(5044)
    daemon.write(listener("beats", "pomelo", 5044))
    daemon.reload()
    assert daemon.reactor.bound == 1
    assert peer.said_goodbye
    assert daemon.reactor.peer(5044).connection.origin.protocol == "pomelo"


@pytest.mark.parametrize("new", [False, True])
def test_a_broken_certificate(start, authority, *, new):
    """Of a new listener: nothing changes.  Of one that is there: the old one stays, and
    the result says so.
    """
    pair = authority.issue("server")
    tls = {"certificate": str(pair.certificate), "private_key": str(pair.key)}
    secured = listener("secured", "lumberjack", 5045, tls=tls)
    daemon = start(BEATS) if new else start(BEATS, secured)
    pair.certificate.write_text("-----BEGIN CERTIFICATE-----\nno\n")
    daemon.write(BEATS, secured)
    outcome = daemon.reload()
    assert outcome.applied is not new
    [problem] = outcome.problems
    assert "listener secured: tls: " in problem
    assert str(pair.certificate) in problem
    assert len(daemon.listeners()) == (1 if new else 2)
    shown = daemon.gateway.status().reload
    assert (shown.successful, shown.problems) == (False, [problem])


def test_broken_definitions(start, tmp_path):
    """Of a listener that is there: the old ones stay, and the result says so."""
    routes = tmp_path / "routes.json"
    routes.write_text("[]")
    game = listener("game", "pomelo", 3010, options={"routes": str(routes)})
    daemon = start(game)
    daemon.reactor.peer(3010)
    game["options"] = {**game["options"], "user_bytes": 7}
    daemon.write(game)
    assert daemon.reload().successful
    routes.write_text("no")
    outcome = daemon.reload()
    [problem] = outcome.problems  # of those who come, not of those who are there
    assert outcome.applied
    assert problem.startswith("listener game: options.routes: ")
    assert str(routes) in problem


def test_a_broken_file(daemon):
    """Every mistake is told with its place, and nothing changes."""
    daemon.file.write_text("listeners: [{name: a, listen: tcp:5044x}]\njurnal: {}\n")
    outcome = daemon.reload()
    assert not outcome.applied
    assert any(
        "listeners[0].listen: must end in a port" in one for one in outcome.problems
    )
    assert any(
        "jurnal: unknown key" in one and "(line 2)" in one for one in outcome.problems
    )
    assert daemon.listeners() == [("beats", 5044, 0)]


def test_what_needs_a_restart_is_named(daemon, tmp_path):
    """With its reason, until the file says again what is in force; the rest changes."""
    changed = {
        "node": "gw-2",
        "journal": {"directory": "elsewhere", "commit_interval": "7ms"},
        "spark": {"trigger": "3s"},
    }
    daemon.write(BEATS, listener("streams", "pravega", 6000), **changed)
    remembered = "what its protocol remembers is read when the daemon starts"
    for _ in range(2):  # a second time says the same
        outcome = daemon.reload()
        assert outcome.restart == [
            "node: needs a restart, because events, files and the journal have its name",
            "journal.directory: needs a restart, because the journal is open there",
            f"listeners: streams: needs a restart, because {remembered}",
        ]
        assert outcome.successful
    shown = daemon.gateway.status()
    assert (shown.node, list(shown.reload.restart)) == ("gw-1", outcome.restart)
    assert daemon.running.opened.storage.journal._settings.commit_interval == 0.007
    assert daemon.listeners() == [("beats", 5044, 0)]
    daemon.write(BEATS)
    assert daemon.reload().restart == []
    assert daemon.gateway.status().reload.restart == []


def test_limits_of_the_store_change(daemon):
    """Journal, spool, archive and the memory of connections have the new ones."""
    daemon.write(
        BEATS,
        journal={"memory_bytes": "8MiB", "segment_bytes": "1MiB"},
        spool={"publishers": 0, "max_bytes": "1GiB", "retention": "2h",
               "archive_bytes": "5MiB"},
    )  # fmt: skip
    assert daemon.reload().restart == []
    store = daemon.running.opened.storage
    assert store.journal._memory_bytes == 8 << 20
    assert store.journal._segment_bytes == 1 << 20
    assert store.spool.levels.max_bytes == 1 << 30
    assert store.spool._pace.most == 1 << 30
    assert (store.spool._expiry._retention, store.spool._expiry._most_bytes) == (
        7200,
        5 << 20,
    )
    assert daemon.running.opened.network.common.memory.read_ahead_bytes == 2 << 20
    assert daemon.gateway.status().spool.limit_bytes == 1 << 30


def test_log_and_token_change(daemon):
    """At once."""
    told: list[Any] = []
    daemon.running.configure_log = told.append
    daemon.write(
        BEATS,
        logging={"format": "json"},
        admin={"listen": "tcp:127.0.0.1:8080", "token": "geheim"},
    )
    assert daemon.reload().changed == ["admin.token", "logging.format"]
    assert told[0].format == "json"
    assert daemon.running.admin.site.access.token == "geheim"


def test_what_both_configurations_together_break(start):
    """The new file is right, and what is in force of it with the old one would not be."""
    daemon = start(BEATS, spool={"publishers": 0, "directory": "one"})
    daemon.write(
        {
            **listener("game", "pomelo", 3010),
            "options": {"outbox": {"directory": "one"}},
        },
        spool={"publishers": 0, "directory": "two"},
    )
    outcome = daemon.reload()
    assert not outcome.applied
    assert any("overlaps" in one for one in outcome.problems)
    assert daemon.listeners() == [("beats", 5044, 0)]


def test_what_both_configurations_together_break_in_one_section(start):
    """What is in force of each would be refused in one file, so nothing changes."""
    daemon = start(BEATS, spool={"publishers": 0, "after": "delete"})
    daemon.write(
        BEATS, spool={"publishers": 0, "after": "archive", "consumers": ["alerts"]}
    )
    outcome = daemon.reload()
    assert not outcome.applied
    assert outcome.problems[0].startswith("spool.consumers: they read the archive")
    assert outcome.problems[1].startswith("spool.after: needs a restart")
    assert daemon.running.settings.spool.consumers == []


def test_pomelos_replaced_settings_leave_nothing(start, tmp_path):
    """Their figures stay, and nothing else once their last client is gone."""
    game = listener("game", "pomelo", 3010)
    daemon = start(game)
    service = daemon.running.opened.protocols._services["pomelo"]
    for number in range(3):
        service._servers[-1].rates.too_many += 1
        peer = daemon.reactor.peer(3010)
        daemon.write({**game, "options": {"user_bytes": 100 + number}})
        daemon.reload()
        assert len(service._servers) == len(service.registry.judges) == 2
        peer.leave()
        assert len(service._servers) == len(service.registry.judges) == 1
    [section] = service.statistics()
    assert section.by_name["too_many"] == {"game": 3}


def test_whatever_raises_changes_nothing(daemon, monkeypatch):
    """Code of ours or of a plug-in: the protocols have the listeners they had."""
    protocols = daemon.running.opened.protocols
    before = {name: list(each) for name, each in protocols._listeners.items()}

    def fail(_: object) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(daemon.running.opened.listeners, "prepare", fail)
    daemon.write(BEATS, listener("more", "lumberjack", 5045))
    outcome = daemon.reload()
    assert (outcome.applied, outcome.problems) == (False, ["ZeroDivisionError: oh"])
    assert {n: list(each) for n, each in protocols._listeners.items()} == before
    assert daemon.listeners() == [("beats", 5044, 0)]


def test_a_second_outbox_needs_a_restart(start):
    """As a changed one does; the listener that has it is not opened before."""
    game = listener("game", "pomelo", 3010)
    daemon = start(game)
    one, other = ({"outbox": {"directory": name}} for name in ("one", "other"))
    daemon.write(
        {**game, "options": one}, listener("more", "pomelo", 3011, options=other)
    )
    why = "its directory is read from the daemon's start to its stop"
    assert daemon.reload().restart == [
        f"listeners: game.options.outbox: needs a restart, because {why}",
        f"listeners: more.options.outbox: needs a restart, because {why}",
    ]
    assert daemon.listeners() == [("game", 3010, 0)]


def test_a_port_of_any_number_is_kept(start):
    """Port 0 was given a number, which stays as long as its listener does."""
    daemon = start(listener("beats", "lumberjack", 0))
    [(_, number, _)] = daemon.listeners()
    daemon.write(
        listener("more", "lumberjack", 0),
        {**listener("beats", "lumberjack", 0), "limits": {"idle": "1m"}},
    )
    daemon.reload()
    [(more, other, _), (beats, same, _)] = daemon.listeners()
    assert (more, beats, same) == ("more", "beats", number)
    assert other != number


def test_a_thousand_listeners(daemon):
    """Are opened, changed in one go without a new socket, and closed again."""
    many = [listener(f"l{n}", "lumberjack", 10_000 + n) for n in range(1000)]
    daemon.write(BEATS, *many)
    assert daemon.reload().applied
    assert daemon.reactor.bound == 1001
    daemon.write(BEATS, *({**one, "limits": {"idle": "1m"}} for one in many))
    assert len(daemon.reload().changed) == 1000
    assert daemon.reactor.bound == 1001
    daemon.write(BEATS)
    daemon.reload()
    assert daemon.listeners() == [("beats", 5044, 0)]
    assert len(daemon.reactor.ports) == 1


def test_a_reload_a_second(start):
    """Leaves no timer, socket, listener or service behind, with and without changes."""
    game = listener("game", "pomelo", 3010)
    daemon = start(BEATS, game)
    reactor, gateway = daemon.reactor, daemon.gateway

    def sizes() -> tuple[int, ...]:
        return (
            len(reactor.getDelayedCalls()),
            len(reactor.ports),
            len(gateway.daemon.opened.listeners.leaving),
            len(gateway.daemon.opened.protocols._services["pomelo"]._servers),
            len(gateway.daemon.opened.protocols._listeners["pomelo"]),
            len(gateway.daemon.opened.protocols._served),
        )

    before = sizes()
    for number in range(100):
        daemon.write({**BEATS, "limits": {"idle": f"{1 + number % 7}m"}}, game)
        assert daemon.reload().successful
        reactor.advance(1)
    for _ in range(50):
        daemon.file.write_text("no")
        assert not daemon.reload().applied
        daemon.write(BEATS, game, listener("taken", "pomelo", 5044))
        assert not daemon.reload().applied
        reactor.advance(1)
    assert sizes() == before


# -- when it is asked for -------------------------------------------------------------


class Slow:
    """A file that is read when the test says so."""

    def __init__(self) -> None:
        self.reading: list[Deferred[Any]] = []
        self.applied: list[Any] = []
        self.now = 0.0
        self.reloads = Reloads(
            lambda: None,  # type: ignore[arg-type,return-value]
            self.apply,
            self.read,
            clock=lambda: self.now,
        )
        self.found: list[Outcome] = []

    def read(self, load: object) -> Deferred[Any]:
        self.reading.append(Deferred())
        return self.reading[-1]

    def apply(self, wanted: Any) -> Outcome:
        self.applied.append(wanted)
        return Outcome(changed=[wanted])

    def ask(self) -> None:
        self.reloads.ask().addCallback(self.found.append)


def test_two_at_once():
    """The second, and all that come while the first reads, are one reload after it."""
    slow = Slow()
    slow.reloads.begin()
    for _ in range(5):
        slow.ask()
    assert len(slow.reading) == 1
    slow.reading[0].callback("first")
    assert [one.changed for one in slow.found] == [["first"]]
    assert len(slow.reading) == 2
    slow.reading[1].callback("second")
    assert [one.changed for one in slow.found[1:]] == [["second"]] * 4
    assert len(slow.reading) == 2


def test_signals_while_a_file_is_read():
    """However many come, there is one more reload, and nothing is kept for each."""
    slow = Slow()
    slow.reloads.begin()
    for _ in range(1000):
        slow.reloads.want()
    assert len(slow.reading) == 1
    assert slow.reloads._waiting == []
    slow.reading[0].callback("first")
    slow.reading[1].callback("second")
    assert slow.applied == ["first", "second"]
    assert len(slow.reading) == 2
    slow.reloads.end()
    slow.reloads.want()
    assert len(slow.reading) == 2


def test_when_a_file_began_to_be_read():
    """Is told once that is done: who signalled later waits for the next one."""
    slow = Slow()
    slow.reloads.begin()
    slow.now = 1.0
    slow.reloads.want()
    slow.now = 2.0
    slow.reloads.want()
    slow.now = 3.0
    slow.reading[0].callback("first")
    first = slow.reloads.status()
    assert (first.began, first.at, first.changed) == (1.0, 3.0, ["first"])
    slow.now = 4.0
    slow.reading[1].callback("second")
    second = slow.reloads.status()
    assert (second.began, second.at, second.changed) == (3.0, 4.0, ["second"])


def test_one_during_the_start():
    """Waits until the daemon has started."""
    slow = Slow()
    slow.ask()
    slow.ask()
    assert slow.reading == []
    slow.reloads.begin()
    slow.reading[0].callback("now")
    assert [one.changed for one in slow.found] == [["now"]] * 2


def test_one_during_the_stop():
    """Is refused, be it asked for, waited for or read by then."""
    slow = Slow()
    slow.reloads.begin()
    slow.ask()
    slow.ask()
    slow.reloads.end()
    slow.ask()
    slow.reading[0].callback("too late")
    assert slow.applied == []
    assert [one.problems for one in slow.found] == [["the daemon is stopping"]] * 3
    assert len(slow.reading) == 1


def good_at(reloads: Reloads) -> Any:
    """When the last one was fine, as /metrics has it."""
    [config] = reloads.statistics()
    return config.by_name["succeeded_at"]


def test_one_that_fails():
    """Costs only itself, whatever it is that raises."""
    slow = Slow()
    slow.reloads.begin()
    slow.ask()
    slow.now = 5.0
    slow.reading[0].errback(ZeroDivisionError("oh"))
    assert slow.found[0].problems == ["ZeroDivisionError: oh"]
    slow.now = 7.0
    assert good_at(slow.reloads) == 0.0
    slow.ask()
    slow.reading[1].callback("again")
    assert slow.found[1].applied
    assert good_at(slow.reloads) == 7.0
