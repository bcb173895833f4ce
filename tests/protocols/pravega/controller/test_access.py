"""Who may do what, by `options.access`: every call and every wire command."""

import dataclasses
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml
from twisted.logger import formatEvent

from gateway.protocols.pravega import codec, draft_wire, wire
from gateway.protocols.pravega import wire_segments as ws
from gateway.protocols.pravega import wire_tables as wt
from gateway.protocols.pravega.controller.access import Access, of_segment, of_stream
from gateway.protocols.pravega.controller.call_permissions import CALLS
from gateway.protocols.pravega.controller.grpc import Code
from gateway.protocols.pravega.controller.kept_records import Stream
from gateway.protocols.pravega.errors import Need
from gateway.protocols.pravega.frames import Frames
from gateway.protocols.pravega.options import Rule
from gateway.protocols.pravega.server import PravegaListener
from gateway.testing import FakeConnection
from making import Make
from pravega_draft import read_segment
from pravega_messages import new

from .conftest import basic

ORDERS = "shop/orders/0.#epoch.0"
RULES = [
    Rule(principals=["r"], read=["shop/orders"]),
    Rule(principals=["w"], write=["shop/orders"]),
    Rule(principals=["m"], manage=["shop/orders"]),
    Rule(principals=["g"], groups=["shop/billing"]),
    Rule(principals=["s"], manage=["shop/*"]),
    # As much as anybody, and elsewhere.
    Rule(
        principals=["x"],
        read=["*/other", "other/*"], write=["*/other", "other/*"],
        manage=["*/other", "other/*"], groups=["*/other", "other/*"],
    ),
]  # fmt: skip
"""Somebody with each right at `shop/orders`, one with the scope, one with none of it."""
EVERYBODY = "rwmgsx"

LET_IN = yaml.safe_load(
    (Path(__file__).parents[3] / "vectors" / "pravega-access.yaml").read_text()
)
CALLED: dict[str, str] = LET_IN["calls"]
SENT: dict[type[codec.Message], str] = {
    kind: LET_IN["commands"][kind.__name__]
    for kind, need in codec.NEEDS.items()
    if need is not None
}


@pytest.fixture
def ruled(make_service) -> Any:
    """A controller that knows all of them, and goes by the rules."""
    service = make_service(users=dict.fromkeys(EVERYBODY, "secret"))
    service.controller.access.configure(RULES)
    return service


@pytest.fixture
def warnings(logged) -> Callable[[], list[str]]:
    """What the log has of denials."""
    return lambda: [
        formatEvent(event) for event in logged if event["log_level"].name == "warn"
    ]


def caller(service: Any, name: str) -> Any:
    """A client with a name."""
    return service.peer(authorization=basic(name, "secret"))


def request(service: Any, call: str) -> Any:
    """One about what the rules are about, as far as it names something."""
    kind = service.controller._methods[call][0]
    info = new("StreamInfo", scope="shop", stream="orders")
    cut = new("StreamCut", stream_info=info)
    of_group = "Group" in call
    known = {
        "scope": "shop",
        "stream": "orders",
        "name": "billing" if of_group else "orders",
        "subscriber": "shop/billing",
        "stream_info": info,
        "stream_cut": cut,
        "position": cut,
        "begin": [cut],
    }
    names = kind.DESCRIPTOR.fields_by_name
    fields = {each: known[each] for each in names if each in known}
    if "scope" in fields and names["scope"].message_type is not None:
        fields["scope"] = new("ScopeInfo", scope="shop")
    if kind.DESCRIPTOR.name == "StreamCutRange":
        del fields["begin"]
    return kind(**fields)


def test_every_call_and_command_has_a_permission(service):
    """None is let in by omission: a new one needs an entry here, and in the table."""
    assert set(CALLS) == set(service.controller._methods) == set(CALLED)
    assert set(codec.NEEDS) == set(codec.REQUESTS.values())
    assert {kind.__name__ for kind in SENT} == set(LET_IN["commands"])
    for kind in SENT:
        assert {"token", "request_id"} <= {
            each.name for each in dataclasses.fields(kind)
        }


@pytest.mark.parametrize("name", EVERYBODY)
def test_who_may_call_what(ruled, name):
    """The whole table: who is not let in gets PERMISSION_DENIED, and changes nothing."""
    peer = caller(ruled, name)
    for call, allowed in CALLED.items():
        pending = len(ruled.journal.pending)
        answer = peer.send(call, request(ruled, call).SerializeToString())
        denied = answer.status == Code.PERMISSION_DENIED
        assert denied == (name not in allowed), call
        if denied:
            assert len(ruled.journal.pending) == pending, call
            assert f"'{name}' may not" in answer.text
            assert "(options.access)" in answer.text
        ruled.store()
        peer.exchange()
    assert peer.connection.refused is None


def command(kind: type[codec.Message], segment: str, token: str) -> codec.Message:
    """One about a segment."""
    known = {
        "segment": segment, "parent": segment, "target": segment,
        "source": segment + "#transaction.0", "sources": [segment + "#transaction.0"],
        "token": token, "request_id": 7, "writer": b"w" * 16, "attribute": b"a" * 16,
    }  # fmt: skip
    if kind is ws.LocateOffset:
        known["target"] = 0
    values = {}
    for each in dataclasses.fields(kind):
        if each.name in known:
            values[each.name] = known[each.name]
        elif each.default is dataclasses.MISSING:
            values[each.name] = () if each.name in ("keys", "entries") else 0
    return kind(**values)


class Client:
    """One of the segment store, that speaks version 17."""

    def __init__(
        self, service: Any, settings: Any, principal: str | None = None
    ) -> None:
        self.connection = FakeConnection(
            protocol="pravega", memory=service.journal.memory
        )
        self.connection.origin.principal = principal
        listener = PravegaListener(
            settings, service.container, service.controller.tokens.checks
        )
        self.connection.serve(listener(self.connection))
        self.service = service

    def ask(self, *messages: codec.Message) -> list[codec.Message]:
        """Send, let all become durable, and look."""
        self.connection.deliver(b"".join(map(codec.encode, messages)))
        self.service.store()
        raw = self.connection.sent
        self.connection.clear()
        return [codec.decode(*each) for each in Frames(codec.REPLIES).feed(raw)]


@pytest.fixture
def client(pravega_settings) -> Make[Client]:
    """`client(service, certificate)`: one that has said Hello."""

    def make(service: Any, principal: str | None = None) -> Client:
        made = Client(service, pravega_settings(), principal)
        assert made.ask(wire.Hello(17, 5)) == [wire.Hello(17, 5)]
        return made

    return make


def token(service: Any, name: str, stream: str = "orders") -> str:
    made: str = service.controller.tokens.make("shop", stream, name)
    assert made
    return made


def denied(reply: list[codec.Message], code: int = 0) -> bool:
    """Whether it is a denial, in the reference's own words."""
    if reply and isinstance(reply[0], wire.AuthTokenCheckFailed):
        [failed] = reply
        assert failed.request_id == 7
        assert failed.code == code
        return True
    return False


@pytest.mark.parametrize("name", EVERYBODY)
def test_who_may_send_what(ruled, client, name):
    """The whole table: who may not gets AuthTokenCheckFailed, changes nothing, and goes
    on with what is allowed.
    """
    peer = client(ruled)
    mine = token(ruled, name)
    for kind, allowed in SENT.items():
        pending = len(ruled.journal.stored)
        reply = peer.ask(command(kind, ORDERS, mine))
        assert denied(reply) == (name not in allowed), kind.__name__
        if name not in allowed:
            assert len(ruled.journal.stored) == pending
        if kind in (ws.DeleteSegment, wt.DeleteTableSegment):
            ruled.container.submit(ruled.container.state.create(f"a/b/{kind}", 0))
            ruled.store()
    assert peer.connection.refused is None


@pytest.mark.parametrize("name", EVERYBODY)
@pytest.mark.parametrize("stream", ["_RGbilling", "billing_kvtable"])
def test_who_may_use_a_reader_group(ruled, client, name, stream):
    """Java's has its state in a stream, Python's in a table: all of it takes `groups`,
    and of the table `read`, `write` and `manage` do as well.
    """
    peer = client(ruled)
    mine = token(ruled, name, stream)
    for kind, allowed in SENT.items():
        also = "s" if stream == "billing_kvtable" and "s" in allowed else ""
        reply = peer.ask(command(kind, f"shop/{stream}/0.#epoch.0", mine))
        assert denied(reply) == (name not in "g" + also), kind.__name__


def test_a_reader_group_and_its_streams(ruled):
    """Who makes one must be allowed to read what it reads."""
    both = Rule(principals=["r"], groups=["shop/billing"], read=["shop/orders"])
    ruled.controller.access.configure([both, Rule(principals=["s"], manage=["shop/*"])])
    caller(ruled, "s").status("createScope", new("ScopeInfo", scope="shop"))
    peer = caller(ruled, "r")
    for call in ("createReaderGroup", "updateReaderGroup", "updateSubscriberStreamCut"):
        wanted = request(ruled, call)
        assert peer.try_(call, wanted).status == Code.OK
    wanted = request(ruled, "createReaderGroup")
    wanted.begin[0].stream_info.stream = "returns"
    answer = peer.try_("createReaderGroup", wanted)
    assert answer.text == "'r' may not read 'shop/returns' (options.access)"
    assert answer.status == Code.PERMISSION_DENIED


@pytest.mark.parametrize(
    ("asks", "allowed"), [(0, "rwms"), (2, "rwms"), (3, "r"), (4, "w"), (5, "")]
)
def test_a_token_for_something(ruled, asks, allowed):
    """Java says what it wants one for, and hears at once that it may not."""
    info = new("StreamInfo", scope="shop", stream="orders", access=asks)
    for name in EVERYBODY:
        answer = caller(ruled, name).send(
            "getDelegationToken", info.SerializeToString()
        )
        assert (answer.status == 0) == (name in allowed), name
    group = new("StreamInfo", scope="shop", stream="_RGbilling", access=5)
    answer = caller(ruled, "g").send("getDelegationToken", group.SerializeToString())
    assert answer.status == 0


def test_lists_have_what_one_may_see(ruled):
    """Names of what is not one's business are not told."""
    ruled.controller.access.configure(
        [
            Rule(principals=["s"], manage=["*/*"]),
            Rule(principals=["r"], read=["shop/orders*"]),
            Rule(principals=["x"], write=["bank/*"]),
        ]
    )
    boss = caller(ruled, "s")
    for scope in ("bank", "shop"):
        boss.status("createScope", new("ScopeInfo", scope=scope))
    for stream in ("orders", "orders-old", "returns"):
        config = new(
            "StreamConfig",
            stream_info=new("StreamInfo", scope="shop", stream=stream),
            scaling=new("ScalingPolicy", segments=1),
        )
        assert boss.status("createStream", config) == 0
    table = new("KeyValueTableConfig", scope="shop", name="prices", primary_bytes=8)
    assert boss.status("createKeyValueTable", table) == 0

    def seen(name: str) -> tuple[list[str], list[str], list[str]]:
        peer = caller(ruled, name)
        shop = new("ScopeInfo", scope="shop")
        scopes = peer.call("listScopes", new("ScopesRequest")).scopes
        streams = peer.call(
            "listStreamsInScope", new("StreamsInScopeRequest", scope=shop)
        ).streams
        tables = peer.call(
            "listKeyValueTablesInScope", new("KeyValueTablesRequest", scope=shop)
        ).tables
        return (
            list(scopes),
            [each.stream for each in streams],
            [each.name for each in tables],
        )

    orders = ["orders", "orders-old"]
    assert seen("s") == (["bank", "shop"], [*orders, "returns"], ["prices"])
    assert seen("r") == (["shop"], orders, [])
    stranger = caller(ruled, "x")
    assert list(stranger.call("listScopes", new("ScopesRequest")).scopes) == ["bank"]
    asked = new("StreamsInScopeRequest", scope=new("ScopeInfo", scope="shop"))
    answer = stranger.send("listStreamsInScope", asked.SerializeToString())
    assert answer.text == "'x' may not see the scope 'shop' (options.access)"


def test_rules_change_under_open_connections(ruled, client):
    """A writer that was set up stops at its next append, and is told to get another token,
    with which it is told no; who was denied goes on.
    """
    tokens = ruled.controller.tokens
    ruled.container.submit(ruled.container.state.create(ORDERS, 0))
    ruled.store()
    writer, reader = client(ruled), client(ruled)
    setup = wire.SetupAppend(7, b"w" * 16, ORDERS, token(ruled, "w"))
    [reply] = writer.ask(setup)
    assert isinstance(reply, wire.AppendSetup)
    event = b"\0\0\0\0\0\0\0\1a"
    append = partial(wire.AppendBlockEnd, b"w" * 16, len(event), event, 1)
    [stored] = writer.ask(append(1, 7))
    assert isinstance(stored, wire.DataAppended)
    assert denied(reader.ask(ws.ReadSegment(ORDERS, 0, 9, token(ruled, "x"), 7)))

    ruled.clock.advance(1)
    tokens.configure([Rule(principals=["x"], read=["shop/orders"])])
    reply = writer.ask(append(2, 7))
    assert denied(reply, code=1)
    assert reply[0].trace == "'w' may not write 'shop/orders' (options.access)"
    assert str(writer.connection.refused) == reply[0].trace
    assert denied(client(ruled).ask(setup), code=1)
    ruled.clock.advance(1)
    setup.token = token(ruled, "w")
    assert denied(client(ruled).ask(setup))
    [found] = reader.ask(ws.ReadSegment(ORDERS, 0, 9, token(ruled, "x"), 7))
    assert isinstance(found, ws.SegmentRead)
    assert found.data == event

    tokens.configure(None)
    assert not denied(client(ruled).ask(setup))


def test_denials_are_counted_and_told_once(ruled, client, warnings):
    """For each principal, resource and permission, until the rules change."""
    peer, calls = client(ruled), caller(ruled, "x")
    access = ruled.controller.access
    read = ws.ReadSegment(ORDERS, 0, 9, token(ruled, "x"), 7)
    info = new("StreamInfo", scope="shop", stream="orders").SerializeToString()
    for _ in range(3):
        assert denied(peer.ask(read))
        assert calls.send("sealStream", info).status == Code.PERMISSION_DENIED
    other = new("StreamInfo", scope="shop", stream="returns").SerializeToString()
    group = new("ReaderGroupInfo", scope="shop", name="billing").SerializeToString()
    assert calls.send("sealStream", other).status == Code.PERMISSION_DENIED
    assert calls.send("deleteReaderGroup", group).status == Code.PERMISSION_DENIED
    assert warnings() == [
        "Denied: 'x' may not read 'shop/orders' (options.access)",
        "Denied: 'x' may not manage 'shop/orders' (options.access)",
        "Denied: 'x' may not manage 'shop/returns' (options.access)",
        "Denied: 'x' may not use the reader group 'shop/billing' (options.access)",
    ]
    counted = {key: count for key, count in access.denied.items() if count}
    assert counted == {"read": 3, "manage": 4, "groups": 1}
    access.configure(list(RULES))
    assert denied(peer.ask(read))
    assert len(warnings()) == 4
    access.configure(RULES[:-1])
    assert denied(peer.ask(read))
    assert len(warnings()) == 5


def test_what_is_remembered_is_bounded(warnings):
    """A client may ask for as many names as it likes: the answer stays right, and the log
    has a hundred of them; so have others.
    """
    access = Access()
    access.configure(RULES)
    for number in range(12_000):
        what = of_stream("shop", f"n{number}")
        assert access.denial("r", Need.READ, what) is not None
    assert access._known.cache_info().currsize <= 10_000
    assert len(warnings()) == 100
    assert access.denial("r", Need.READ, of_segment(ORDERS)) is None
    for number in range(2000):
        assert access.denial(f"CN={number}", Need.READ, of_segment(ORDERS)) is not None
    assert len(warnings()) == 100 + 999


def test_long_names_are_not_remembered():
    """A call may bring a name of a MiB: ten thousand of these would be all memory."""
    access = Access(RULES)
    for need in Need:
        for name in ("n" * 1000, "orders" + "s" * 2**20):
            assert not access.allows("r", need, of_stream("shop", name))
            assert not access.allows("r", need, of_stream(name, "orders"))
            assert not access.allows("", need, of_stream(name, "orders"))
    assert not access._known.cache_info().currsize


def test_a_list_takes_turns(ruled):
    """Who asks for many lists at once holds nobody up: some names are looked at in each
    turn, however few of them are shown."""
    boss = caller(ruled, "s")
    boss.status("createScope", new("ScopeInfo", scope="shop"))
    scope = ruled.controller._catalog.scopes["shop"]
    scope.streams |= {f"s{number}": Stream() for number in range(4000)}
    peer = caller(ruled, "r")
    asked = new("StreamsInScopeRequest", scope=new("ScopeInfo", scope="shop"))
    message = asked.SerializeToString()
    for _ in range(10):
        stream = peer.begin("listStreamsInScope")
        body = b"\0" + len(message).to_bytes(4) + message
        peer.h2.send_data(stream, body, end_stream=True)
    peer.connection.stepwise = True
    before = peer.connection.turns
    peer.connection.deliver(peer.output())
    while peer.connection.turn_due:
        peer.connection.take_turn()
    assert peer.connection.turns - before >= 5
    peer.exchange()
    assert [each.status for each in peer.answers.values()][-10:] == [0] * 10


# -- certificates ---------------------------------------------------------------


@pytest.fixture
def certified(make_service) -> Any:
    """A controller without passwords: clients are who their certificates say."""
    service = make_service()
    rules = [
        Rule(principals=["CN=ann"], manage=["shop/*"], write=["shop/*"]),
        Rule(principals=["CN=bob"], read=["shop/*"]),
    ]
    service.controller.access.configure(rules)
    return service


def test_a_certificate_is_a_name(certified, client):
    """For calls, for the tokens that they give, and where no token is brought."""
    ann = certified.peer()
    ann.connection.origin.principal = "CN=ann"
    assert ann.status("createScope", new("ScopeInfo", scope="shop")) == 0
    made = ann.call(
        "getDelegationToken", new("StreamInfo", scope="shop", stream="orders")
    ).token
    stranger = certified.peer()
    answer = stranger.send(
        "createScope", new("ScopeInfo", scope="x").SerializeToString()
    )
    assert answer.text == (
        "a client without a name may not manage the scope 'x' (options.access)"
    )
    create = partial(ws.CreateSegment, 7, ORDERS, 0, 0)
    assert denied(client(certified).ask(create()))
    assert denied(client(certified, "CN=bob").ask(create()))
    [reply] = client(certified, "CN=ann").ask(create())
    assert reply == ws.SegmentCreated(7, ORDERS)
    # Who brings a token is who the token says.
    assert denied(client(certified, "CN=ann").ask(create(token(certified, "CN=bob"))))
    [reply] = client(certified).ask(ws.SealSegment(7, ORDERS, made))
    assert reply == ws.SegmentSealed(7, ORDERS)


def test_the_draft_by_certificate(certified, pravega_settings):
    """It has no tokens: what a certificate may, the draft may."""
    for name, told in (
        ("CN=ann", None),
        ("CN=bob", "'CN=bob' may not write 'shop/orders' (options.access)"),
        (None, "a client without a name may not write 'shop/orders' (options.access)"),
    ):
        peer = Client(certified, pravega_settings(), name)
        peer.connection.deliver(draft_wire.setup_append(b"w" * 16, ORDERS))
        certified.store()
        refused = peer.connection.refused
        assert told == (None if refused is None else str(refused))
    certified.controller.access.configure([Rule(principals=["CN=w"], write=["shop/*"])])
    # A setup creates the segment.
    peer = Client(certified, pravega_settings(), "CN=w")
    peer.connection.deliver(draft_wire.setup_append(b"w" * 16, "shop/new/0"))
    assert "may not manage 'shop/new'" in str(peer.connection.refused)
    peer = Client(certified, pravega_settings(), "CN=w")
    peer.connection.deliver(read_segment(ORDERS, 0, 9))
    assert "may not read 'shop/orders'" in str(peer.connection.refused)


def test_a_certificate_is_no_password(ruled, client):
    """Where callers must say who they are, a certificate's name counts for nothing."""
    [reply] = client(ruled, "r").ask(ws.ReadSegment(ORDERS, 0, 9, "", 7))
    assert reply == wire.AuthTokenCheckFailed(7, "", 0)


def test_rows_say_who_has_proved_to_be_their_writer(ruled, client):
    """By a token as by a certificate; also where several share a connection."""
    both = [Rule(principals=["ann", "bob"], write=["shop/*"])]
    ruled.controller.access.configure(both)
    ruled.container.submit(ruled.container.state.create(ORDERS, 0))
    ruled.store()
    for certificate in (None, "CN=proxy"):
        peer = client(ruled, certificate)
        writers = {"ann": uuid4().bytes, "bob": uuid4().bytes}
        for name, writer in writers.items():
            peer.ask(wire.SetupAppend(7, writer, ORDERS, token(ruled, name)))
        for number, name in enumerate(("ann", "bob", "bob", "ann")):
            data = struct.pack(">II", 0, 1) + b"x"
            end = wire.AppendBlockEnd(writers[name], len(data), data, 1, number + 1, 7)
            peer.ask(end)
            [*_, last] = [one.batch for one in ruled.journal.stored if one.batch.count]
            assert last.origin.principal == name
            assert last.origin.session == peer.connection.origin.session
    assert peer.connection.origin.principal == "CN=proxy"


def test_nothing_of_others_is_merged(ruled, client):
    """A merge takes the right to write to all that it takes from, with the same token."""
    for name in (ORDERS, f"{ORDERS}#transaction.0", "shop/returns/0#transaction.0"):
        ruled.container.submit(ruled.container.state.create(name, 0))
    ruled.store()
    peer, mine = client(ruled), token(ruled, "w")
    merge = partial(ws.MergeSegments, 7, ORDERS)
    [merged] = peer.ask(merge(f"{ORDERS}#transaction.0", mine))
    assert isinstance(merged, ws.SegmentsMerged)
    assert denied(peer.ask(merge("shop/returns/0#transaction.0", mine)))
    assert "shop/returns/0#transaction.0" in ruled.container.state.segments


def test_who_writes_a_revisioned_stream_may_truncate_it(ruled, client):
    """Java's state synchronizers do, with what `write` allows; not so a stream of events."""
    ruled.container.submit(ruled.container.state.create(ORDERS, 0))
    ruled.store()
    peer, mine = client(ruled), token(ruled, "w")
    cut = ws.TruncateSegment(7, ORDERS, 0, mine)
    assert denied(peer.ask(cut))
    setup = wire.SetupAppend(7, b"w" * 16, ORDERS, mine)
    peer.ask(setup, wire.ConditionalAppend(b"w" * 16, 1, 0, b"state", 7))
    assert peer.ask(cut) == [ws.SegmentTruncated(7, ORDERS)]
