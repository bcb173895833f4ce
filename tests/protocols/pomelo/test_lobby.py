"""Several gateways as one lobby: who hears what, and what is told of those that are away."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from pydantic import SecretStr
from twisted.internet.defer import CancelledError, Deferred, maybeDeferred
from twisted.internet.error import ConnectionRefusedError as Refused
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.web.client import ResponseDone, ResponseNeverReceived

from gateway.event import Origin
from gateway.protocols.pomelo import wire
from gateway.protocols.pomelo.admin import everywhere
from gateway.protocols.pomelo.listener import Pomelo
from gateway.protocols.pomelo.lobby.call import Done, call
from gateway.protocols.pomelo.lobby.lobby import Lobby, backend_of, portions
from gateway.protocols.pomelo.lobby.neighbour import MOST_CALL_BYTES
from gateway.protocols.pomelo.lobby.taken import Taken
from gateway.protocols.pomelo.options import Lobby as LobbyOptions
from gateway.protocols.pomelo.options import Options
from gateway.protocols.pomelo.push.page import page, parse
from gateway.protocols.pomelo.push.row import (
    Addressee,
    AnswerRow,
    Membership,
    Push,
    change,
    kick,
)
from gateway.protocols.pomelo.registry import Registry
from gateway.sdk.http_client import Backend
from gateway.sdk.limits import Limits
from gateway.sdk.protocol import Answer
from gateway.testing import FakeConnection, ManualJournal

PAGES: Mapping[str, Callable[[bytes], Any]] = {
    "push": parse,
    "kick": kick,
    "group": change,
}


class Net:
    """Lobbies on one clock, and a network between them that does its worst."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.gateways: dict[str, Gateway] = {}
        """By address; a gateway may have two."""
        self.faults: dict[str, list[str]] = {}
        """What becomes of the next requests to an address: `lost`, `away`, `slow`, `late`."""
        self.requests: list[tuple[str, str]] = []
        """Who asked whom."""

    def gateway(self, name: str, *addresses: str, **settings: Any) -> Gateway:
        """One more; its list has all addresses, its own as well."""
        made = Gateway(self, name, **settings)
        for address in addresses or (f"http://{name}:8080",):
            self.gateways[address] = made
        return made

    def pair(self) -> tuple[Gateway, Gateway]:
        """Two that are one lobby."""
        found = self.gateway("gw-1"), self.gateway("gw-2")
        self.connect()
        return found

    def connect(self, **options: Any) -> None:
        """All are one lobby."""
        everybody = list(self.gateways)
        for one in self.gateways.values():
            given = {"gateways": everybody, "token": SecretStr("t0k"), **options}
            one.lobby.configure(LobbyOptions(**given))

    def agent(self, name: str, address: str) -> Agent:
        return Agent(self, name, address)


class Agent:
    """In place of Twisted's: a way from one gateway to another."""

    def __init__(self, net: Net, name: str, address: str) -> None:
        self._net, self._name, self._address = net, name, address

    def request(self, method: bytes, uri: bytes, headers: Any, body: Any) -> Any:
        net, address = self._net, self._address
        assert method == b"POST"
        assert uri.endswith(b"/api/lobby")
        net.requests.append((self._name, address))
        done: Deferred[Any] = Deferred(_cancelled)
        faults = net.faults.get(address, [])
        fault = faults.pop(0) if faults else ""
        if fault == "away" or address not in net.gateways:
            done.errback(Refused())
            return done
        said: list[bytes] = []
        body.startProducing(SimpleNamespace(write=said.append))
        if fault == "slow":
            return done
        if fault == "late":
            net.clock.callLater(1, self._take, b"".join(said), headers, done, "")
        else:
            self._take(b"".join(said), headers, done, fault)
        return done

    def _take(self, said: bytes, headers: Any, done: Deferred[Any], fault: str) -> None:
        to = self._net.gateways[self._address]
        [authorization] = headers.getRawHeaders("Authorization", [""])
        if authorization != f"Bearer {to.token}":
            done.callback(Response(Answer(b"{}", code=401)))
            return
        taken: Deferred[Answer] = maybeDeferred(to.taken.page, said)
        if fault == "lost":
            lost = ResponseNeverReceived([Failure(Refused())])
            taken.addCallback(lambda _: done.called or done.errback(lost))
        else:
            taken.addCallback(lambda one: done.called or done.callback(Response(one)))


def _cancelled(done: Deferred[Any]) -> None:
    done.errback(ResponseNeverReceived([Failure(CancelledError())]))


class Response:
    """What came back."""

    def __init__(self, answer: Answer) -> None:
        self.code, self._body = answer.code, answer.body

    def deliverBody(self, protocol: Any) -> None:
        protocol.dataReceived(self._body)
        protocol.connectionLost(Failure(ResponseDone()))


class Gateway:
    """One, with its clients."""

    def __init__(self, net: Net, name: str, token: str = "t0k", **options: Any) -> None:
        self.net, self.name, self.token = net, name, token
        settings = SimpleNamespace(
            limits=Limits(),
            options=Options(
                **{
                    "trust_uid": True,
                    "session_events": False,
                    "heartbeat": "0s",
                    **options,
                }
            ),
        )
        self.registry = Registry()
        self.lobby = Lobby(name, self.registry, net.clock, self._connect)
        self.taken = Taken(name, self.lobby.run, self.registry, net.clock)
        self.journal = ManualJournal()
        self._serve = Pomelo(settings, self.journal, net.clock, self.registry)
        self.clients: dict[str, FakeConnection] = {}

    def _connect(self, address: str, options: LobbyOptions, reactor: Any) -> Backend:
        backend = backend_of(address, options, reactor)
        backend._agent = self.net.agent(self.name, address)
        return backend

    def client(self, uid: str, session: str | None = None) -> FakeConnection:
        """One more that is connected here."""
        session = session or f"{self.name}-{len(self.clients)}"
        connection = FakeConnection(Origin("pomelo", "g", session, "192.0.2.1:1"))
        connection.serve(self._serve(connection))
        user = json.dumps({"sys": {}, "user": {"uid": uid}}).encode()
        connection.deliver(wire.package(1, user) + wire.package(wire.ACK))
        connection.clear()
        self.clients[session] = connection
        return connection

    def post(self, what: str, **asked: Any) -> Deferred[Answer]:
        """Ask it for something over its admin port."""
        answer = page(self.lobby, PAGES[what])(json.dumps(asked).encode())
        return answer if isinstance(answer, Deferred) else _fired(answer)

    def ask(self, what: str, **asked: Any) -> Any:
        """The same, and its answer, which comes at once."""
        answered = self.post(what, **asked)
        self.net.clock.advance(0)
        answer = answered.result
        assert isinstance(answer, Answer), answer
        assert answer.code == 200, answer.body
        return json.loads(answer.body)


def _fired(answer: Answer) -> Deferred[Answer]:
    done: Deferred[Answer] = Deferred()
    done.callback(answer)
    return done


def heard(connection: FakeConnection, what: bytes = b"onScore") -> int:
    """How often."""
    return connection.sent.count(what)


@pytest.fixture
def net() -> Net:
    """Nobody is there."""
    return Net()


PUSH = {"route": "onScore", "body": {"n": 1}}


def test_everybody_hears_a_push_once(net):
    """Wherever they are; the answer adds up, and says who did what.  A gateway finds
    itself in its list, and one that has two addresses there does it once.
    """
    one = net.gateway("gw-1")
    two = net.gateway("gw-2", "http://gw-2:8080", "unix:/run/gw-2.sock")
    net.connect()
    clients = [one.client("alice"), two.client("alice"), two.client("bob")]
    assert one.ask("push", **PUSH, uid="alice") == {
        "sent": 2,
        "dropped": 0,
        "gateways": [
            {"gateway": "gw-1", "sent": 1, "dropped": 0},
            {"gateway": "gw-2", "at": "http://gw-2:8080", "sent": 1, "dropped": 0},
        ],
    }
    assert list(map(heard, clients)) == [1, 1, 0]
    assert two.ask("push", **PUSH, all=True)["sent"] == 3
    assert list(map(heard, clients)) == [2, 2, 1]
    assert net.requests.count(("gw-1", "http://gw-1:8080")) == 1
    one.ask("push", **PUSH, all=True)
    assert net.requests.count(("gw-1", "http://gw-1:8080")) == 1, "it knows itself"


def test_nothing_is_passed_on_twice(net):
    """Three gateways that all list each other: two calls, and no more."""
    gateways = [net.gateway(f"gw-{n}") for n in range(3)]
    net.connect()
    for one in gateways:
        one.client("alice")
    gateways[0].ask("push", **PUSH, all=True)
    assert sorted(net.requests) == [("gw-0", f"http://gw-{n}:8080") for n in range(3)]
    net.requests.clear()
    gateways[1].ask("kick", uid="alice")
    assert sorted(net.requests) == [("gw-1", f"http://gw-{n}:8080") for n in range(3)]


def test_a_session_that_is_here_concerns_nobody_else(net):
    """One that is elsewhere is found there."""
    one, two = net.pair()
    here, there = one.client("alice", "s-1"), two.client("bob", "s-2")
    told = one.ask("push", **PUSH, session="s-1")
    assert told["gateways"] == [{"gateway": "gw-1", "sent": 1, "dropped": 0}]
    assert net.requests == []
    assert one.ask("push", **PUSH, session="s-2")["sent"] == 1
    assert (heard(here), heard(there)) == (1, 1)


def test_groups_and_kicks(net):
    """A group has members on all gateways; a kick finds a user wherever he is."""
    one, two = net.pair()
    clients = [one.client("alice"), two.client("alice"), two.client("bob", "s-bob")]
    assert one.ask("group", join="room", uid="alice")["changed"] == 2
    assert one.ask("group", join="room", session="s-bob")["changed"] == 1
    assert two.ask("push", **PUSH, group="room")["sent"] == 3
    assert two.ask("group", leave="room", uid="alice")["changed"] == 2
    assert one.ask("push", **PUSH, group="room")["sent"] == 1
    assert list(map(heard, clients)) == [1, 1, 2]
    kicked = one.ask("kick", uid="alice", reason="maintenance")
    assert kicked["kicked"] == 2
    assert [b"maintenance" in one.sent for one in clients] == [True, True, False]


def test_a_backend_changes_groups_everywhere(net):
    """By uid; who is away is not waited for."""
    one, two = net.pair()
    net.faults["http://gw-2:8080"] = ["lost"]
    two.client("alice")
    one.lobby.change([Membership("room", True, Addressee(uid="alice"))])
    assert one.registry.groups.members("room") == []
    assert [m.uid for m in two.registry.groups.members("room")] == ["alice"]


def test_changes_of_one_answer_are_done_in_their_order(net):
    """On each gateway, whatever call comes late; and they are one call."""
    one, two = net.pair()
    two.client("alice")
    net.faults["http://gw-2:8080"] = ["late"]
    alice = Addressee(uid="alice")
    one.lobby.change([Membership("a", joins, alice) for joins in (True, False) * 9])
    net.clock.advance(1)
    assert two.registry.groups.members("a") == []
    assert net.requests.count(("gw-1", "http://gw-2:8080")) == 1


def test_an_answer_from_a_row_finds_its_session(net):
    """A job may put it into any gateway's outbox."""
    backends = [{"routes": ["shop.buy"], "timeout": "1m"}]
    one, two = net.gateway("gw-1"), net.gateway("gw-2", backends=backends)
    net.connect()
    client = two.client("alice", "s-2")
    client.deliver(wire.request(7, "shop.buy", b"{}"))
    two.journal.store_all()
    assert heard(client, b"price") == 0
    row = AnswerRow("s-2", 7, b'{"price":3}')
    assert one.lobby.concerns_others(row)
    [told] = result(one.lobby.spread([row]))
    assert told.counts == {"answered": 1}
    assert heard(client, b'{"price":3}') == 1


def result(coroutine: Any) -> Any:
    """Of what comes to its end at once."""
    done = Deferred.fromCoroutine(coroutine)
    return done.result


def test_a_lost_answer_is_asked_for_again(net):
    """The push was sent, and is not sent again; its figures arrive."""
    one, two = net.pair()
    client = two.client("alice")
    net.faults["http://gw-2:8080"] = ["lost"]
    assert one.ask("push", **PUSH, uid="alice")["sent"] == 1
    assert heard(client) == 1
    assert two.taken.outcomes == {"done": 1, "repeated": 1, "refused": 0}


def test_who_loses_every_answer(net):
    """… is told as one of whom nobody knows; its clients hear it once."""
    one, two = net.pair()
    client = two.client("alice")
    net.faults["http://gw-2:8080"] = ["lost", "lost"]
    told = one.ask("push", **PUSH, uid="alice")
    assert (told["sent"], heard(client)) == (0, 1)
    [_, other] = told["gateways"]
    assert other["at"] == "http://gw-2:8080"
    assert "error" in other


def test_who_is_away_or_has_another_token(net):
    """It is told which one and why, and the others hear it."""
    one, two = net.gateway("gw-1"), net.gateway("gw-2")
    net.gateway("gw-3", token="other").client("alice")
    net.connect()
    del net.gateways["http://gw-2:8080"]
    here = one.client("alice")
    told = one.ask("push", **PUSH, uid="alice")
    assert (told["sent"], heard(here)) == (1, 1)
    errors = {one["at"]: one["error"] for one in told["gateways"] if "error" in one}
    assert set(errors) == {"http://gw-2:8080", "http://gw-3:8080"}
    assert "refused" in errors["http://gw-2:8080"]
    assert errors["http://gw-3:8080"] == (
        "answers 401: options.lobby.token must be its admin.token"
    )
    assert one.lobby.outcomes == {"answered": 0, "refused": 0, "away": 2}
    away, other = one.lobby.troubles
    assert away.startswith("http://gw-2:8080/api/lobby does not answer: ")
    assert other.startswith("http://gw-3:8080 answers 401: ")
    net.gateways["http://gw-2:8080"] = two
    there = two.client("alice")
    net.gateways["http://gw-3:8080"].token = "t0k"
    assert one.ask("push", **PUSH, uid="alice")["sent"] == 3
    assert heard(there) == 1
    assert one.lobby.troubles == []


@pytest.mark.parametrize(
    ("code", "body", "why"),
    [
        (403, b'{"error":"set admin.token"}', "answers 403: set admin.token"),
        (
            404,
            b'{"error":"no such page"}',
            "answers 404: it has no pomelo listener, or is",
        ),
        (500, b"<html>", "answers 500: and does not say why"),
        (503, b'{"error":"%s"}' % (b"x" * 999), "answers 503: " + "x" * 200),
        (200, b"{}", "answers 200, and its body: "),
        (200, b"[" * 9999, "answers 200, and its body: "),
        (200, b" " * (1 << 21), "answers with more than 1048576 B"),
    ],
)
def test_an_answer_of_no_use(net, code, body, why):
    """From what is no gateway, or will not be one of the lobby: it is told, and why."""
    one, two = net.pair()
    two.taken.page = lambda _: Answer(body, code=code)  # type: ignore[method-assign]
    told = one.ask("push", **PUSH, uid="alice")
    error = told["gateways"][-1]["error"]
    assert error.startswith(why)
    assert len(error) < 300


def test_who_is_slow_holds_back_nobody(net):
    """One waits for it as long as is allowed, then no more for a while."""
    one, two = net.gateway("gw-1"), net.gateway("gw-2")
    net.connect(timeout="3s")
    here, there = one.client("alice"), two.client("alice")
    net.faults["http://gw-2:8080"] = ["slow"]
    answered = one.post("push", **PUSH, uid="alice")
    assert (answered.called, heard(here)) == (False, 1), "who is here need not wait"
    net.clock.advance(3)
    [_, slow] = json.loads(answered.result.body)["gateways"]
    assert slow == {"at": "http://gw-2:8080", "error": "no answer in 3 s"}
    told = one.ask("push", **PUSH, uid="alice")
    assert "is asked again in 6 s" in told["gateways"][1]["error"]
    assert len([to for _, to in net.requests if "gw-2" in to]) == 1
    net.clock.advance(6)
    assert one.ask("push", **PUSH, uid="alice")["sent"] == 2
    assert (heard(here), heard(there)) == (3, 1)


def test_what_waits_for_one_is_bounded(net):
    """Calls run at once and wait, up to so many bytes; the others are told so."""
    one = net.gateway("gw-1")
    net.gateway("gw-2")
    net.connect(requests=2, timeout="3s")
    net.faults["http://gw-2:8080"] = ["slow"] * 100
    body = "x" * 1_000_000
    waiting = [one.post("push", route="r", body=body, uid="alice") for _ in range(20)]
    told = [json.loads(each.result.body) for each in waiting if each.called]
    errors = [each["gateways"][-1]["error"] for each in told]
    assert len(errors) == 20 - 16
    assert all("bytes of calls wait for it, limit 16777216" in each for each in errors)
    assert len([to for _, to in net.requests if "gw-2" in to]) == 2
    net.clock.advance(3)
    assert all(each.called for each in waiting), "nobody waits for ever"


def test_what_is_too_long_for_a_call(net):
    """It is pushed here, and told of the others."""
    one = net.gateway("gw-1")
    net.gateway("gw-2")
    net.connect()
    here = one.client("alice")
    told = one.ask(
        "push", route="onScore", body="x" * (MOST_CALL_BYTES - 50), uid="alice"
    )
    assert (told["sent"], heard(here)) == (1, 1)
    assert "limit 1048576" in told["gateways"][-1]["error"]


def test_what_can_not_be_sent_here_is_asked_of_nobody(net):
    """One whose definitions differ says so for itself."""
    protos = {"onScore": {"required uInt32 n": 1}}
    one, two = net.gateway("gw-1"), net.gateway("gw-2", server_protos=protos)
    net.connect()
    one.client("alice"), two.client("alice")
    answered = two.post("push", route="onScore", body={"n": "?"}, uid="alice")
    assert answered.result.code == 400
    assert net.requests == []
    told = one.ask("push", route="onScore", body={"n": "?"}, uid="alice")
    assert told["sent"] == 1
    assert told["gateways"][1]["error"].startswith("1 refused: ")
    assert one.lobby.outcomes["refused"] == 1


def test_what_is_no_call(net):
    """400, and nothing is done; a row from a later version is refused by itself."""
    two = net.gateway("gw-2")
    client = two.client("alice")
    for body in (b"", b"{}", b'{"by":"x","number":1,"rows":[{"push":1}]}', b"[" * 9999):
        answer = two.taken.page(body)
        assert isinstance(answer, Answer)
        assert answer.code == 400
    later = b'{"by":"x","number":1,"rows":[{"song":{"uid":"alice"}}]}'
    assert json.loads(two.taken.page(later).result.body)["refused"] == 1
    assert client.sent == b""


def test_calls_are_remembered_and_forgotten(net):
    """Longer than anybody may wait, and not for ever."""
    longest = LobbyOptions(gateways=["http://a"], timeout="30s").timeout
    two = net.gateway("gw-2")
    client = two.client("alice")
    said = msgspec.json.encode(
        call("x", 1, [Push("onScore", b"1", Addressee(everyone=True))])
    )
    for _ in range(4):
        two.taken.page(said)
        net.clock.advance(longest - 1)
    assert heard(client) == 2, "the fourth one came after a minute"
    assert len(two.taken._known) == 1


def test_a_call_that_comes_again_while_it_is_done(net):
    """It waits for the answer of the first."""
    two = net.gateway("gw-2")
    clients = [two.client("alice") for _ in range(300)]
    said = msgspec.json.encode(
        call("x", 1, [Push("onScore", b"1", Addressee(everyone=True))])
    )
    first, second = two.taken.page(said), two.taken.page(said)
    assert isinstance(first, Deferred)
    assert isinstance(second, Deferred)
    net.clock.advance(0)
    assert first.result.body == second.result.body
    assert json.loads(first.result.body)["counts"] == {"sent": 300, "dropped": 0}
    assert {heard(one) for one in clients} == {1}


def test_other_gateways_from_now_on(net):
    """A reload changes the list; the same one changes nothing."""
    one, two = net.gateway("gw-1"), net.gateway("gw-2")
    options = LobbyOptions(gateways=["http://gw-2:8080"], token=SecretStr("t0k"))
    two.client("alice")
    assert "gateways" not in one.ask("push", **PUSH, uid="alice")
    one.lobby.configure(options)
    neighbours = one.lobby.others
    one.lobby.configure(options.model_copy())
    assert one.lobby.others == neighbours
    assert one.ask("push", **PUSH, uid="alice")["sent"] == 1
    one.lobby.configure(None)
    assert one.ask("push", **PUSH, uid="alice") == {"sent": 0, "dropped": 0}


def test_a_ca_that_is_none(net, tmp_path):
    """It is told, and the lobby stays as it was."""
    one = net.gateway("gw-1")
    net.gateway("gw-2")
    net.connect()
    (tmp_path / "ca.pem").write_text(
        "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----"
    )
    options = LobbyOptions(gateways=["https://a"], ca=tmp_path / "ca.pem")
    with pytest.raises(ValueError, match=r"options\.lobby\.ca: .*ca\.pem"):
        one.lobby.configure(options)
    assert [each.address for each in one.lobby.others][1:] == ["http://gw-2:8080"]


def test_an_authority_that_changes(net, authority):
    """A reload believes the new one; without its file the lobby stays as it was."""
    one = net.gateway("gw-1")
    options = LobbyOptions(gateways=["https://a"], ca=authority.ca)
    one.lobby.configure(options)
    before = one.lobby.others
    authority.ca.write_bytes(authority.ca.read_bytes() * 2)
    one.lobby.configure(options)
    after = one.lobby.others
    assert before != after
    authority.ca.unlink()
    with pytest.raises(ValueError, match=r"options\.lobby\.ca: .*No such file"):
        one.lobby.configure(options)
    assert one.lobby.others == after


def test_portions():
    """Each fits in a call; what is larger than one goes alone."""
    to = Addressee(everyone=True)
    sizes = [10, 300_000, 300_000, 2_000_000, 10, 10]
    rows = [Push("r", b"1" * size, to) for size in sizes]
    found = [[row.size for row in some] for some in portions(rows)]
    assert found == [[10, 300_000], [300_000], [2_000_000], [10, 10]]
    assert list(portions([])) == []


@pytest.mark.parametrize("seed", range(40))
def test_at_most_once_whatever_the_network_does(net, seed):
    """Every client hears each push at most once; exactly once, and counted, if its
    gateway is told without an error.
    """
    chance = random.Random(seed)
    gateways = [net.gateway(f"gw-{n}") for n in range(4)]
    net.connect(timeout="2s", requests=chance.randint(1, 3))
    clients = {one.name: [one.client("alice") for _ in range(n)]
               for n, one in enumerate(gateways)}  # fmt: skip
    posted: list[tuple[str, Deferred[Answer]]] = []
    for number in range(60):
        address = chance.choice(list(net.gateways))
        net.faults.setdefault(address, []).extend(
            chance.choices(("", "lost", "away", "slow"), (6, 3, 2, 1), k=2)
        )
        route = f"push-{number}-"
        one = chance.choice(gateways)
        to = chance.choice(({"uid": "alice"}, {"all": True}))
        posted.append((route, one.post("push", route=route, body=1, **to)))
        net.clock.pump([0.1] * chance.randint(0, 12))
    net.faults.clear()
    net.clock.pump([0.5] * 20)
    errors = 0
    for route, answered in posted:
        told = json.loads(answered.result.body)
        fine = {each["gateway"]: each["sent"] for each in told["gateways"]
                if "error" not in each}  # fmt: skip
        errors += len(told["gateways"]) - len(fine)
        assert told["sent"] == sum(fine.values())
        for name, mine in clients.items():
            times = [heard(client, route.encode()) for client in mine]
            assert set(times) <= {0, 1}
            if name in fine:
                assert sum(times) == len(times) == fine[name]
    assert errors > 0


def listed(gateway: Gateway, name: str, **query: str) -> Any:
    """A page of all gateways."""
    answered = everywhere(name, gateway.lobby)({"everywhere": "1", **query})
    assert isinstance(answered, Deferred)
    gateway.net.clock.advance(0)
    return json.loads(answered.result.body)


def test_who_is_connected_anywhere(net):
    """In one list, each with its gateway, by the same filters; who is away is named."""
    one, two = net.gateway("gw-1"), net.gateway("gw-2")
    net.gateways["http://gw-3:8080"] = one
    net.connect()
    del net.gateways["http://gw-3:8080"]
    for uid in ("alice", "bob"):
        one.client(uid)
        two.client(uid)
    two.client("alice")
    found = listed(one, "sessions", uid="alice", limit="1")
    assert [(each["gateway"], each["uid"]) for each in found["sessions"]] == [
        ("gw-1", "alice"), ("gw-2", "alice"),
    ]  # fmt: skip
    here, there, away = found["gateways"]
    assert (here["gateway"], here["total"], here["more"]) == ("gw-1", 2, False)
    assert (there["gateway"], there["total"], there["more"]) == ("gw-2", 3, True)
    assert (away["at"], "refused" in away["error"]) == ("http://gw-3:8080", True)
    assert found["total"] == 5
    assert "after" in listed(one, "sessions", after="1")["error"]
    assert "uiid" in listed(one, "sessions", uiid="1")["error"]


def test_the_groups_of_all(net):
    """How many are in each, where; without `everywhere` this gateway's own alone."""
    one, two = net.pair()
    for gateway in (one, two):
        gateway.client("alice")
    one.ask("group", uid="alice", join="room")
    found = listed(two, "groups")
    assert [(each["gateway"], each["members"]) for each in found["groups"]] == [
        ("gw-2", 1), ("gw-1", 1),
    ]  # fmt: skip
    own = everywhere("groups", two.lobby)({})
    assert isinstance(own, Answer)
    assert json.loads(own.body)["groups"] == [{"group": "room", "members": 1}]


def test_a_gateway_that_lists_nobody(net):
    """One of before answers, and has no list: it is named as too old."""
    one, two = net.pair()
    two.taken._show = lambda _: Done("gw-2", two.lobby.run)
    found = listed(one, "sessions")
    assert "too old" in found["gateways"][1]["error"]
