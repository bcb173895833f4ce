"""Scopes and streams, by the calls that clients make."""

import itertools
from typing import Any

import pytest

from gateway.protocols.pravega import snapshot
from gateway.protocols.pravega.controller import catalog as catalog_module
from gateway.protocols.pravega.controller import methods
from gateway.protocols.pravega.controller.grpc import Code
from pravega_messages import decode, new


def scope(name: str) -> Any:
    return new("ScopeInfo", scope=name)


def names(peer: Any, tag: str | None = None, token: str = "") -> list[str]:
    """One page of the streams of `sc`."""
    asked = {
        "scope": scope("sc"),
        "continuation": new("ContinuationToken", token=token),
    }
    if tag is None:
        request = new("StreamsInScopeRequest", **asked)
        found = peer.call("listStreamsInScope", request)
    else:
        request = new("StreamsInScopeWithTagRequest", tag=tag, **asked)
        found = peer.call("listStreamsInScopeForTag", request)
    assert {each.scope for each in found.streams} <= {"sc"}
    assert found.HasField("continuation")
    return [each.stream for each in found.streams]


# -- scopes ------------------------------------------------------------------------


def test_scopes(peer):
    """Made once, found, deleted once."""
    assert not peer.call("checkScopeExists", scope("a")).response
    assert peer.status("createScope", scope("a")) == 0
    assert peer.status("createScope", scope("a")) == 2
    assert peer.call("checkScopeExists", scope("a")).response
    assert peer.status("deleteScope", scope("a")) == 0
    assert peer.status("deleteScope", scope("a")) == 2


@pytest.mark.parametrize("name", ["", "a/b", "_system", "ä", "a b", "x" * 256])
def test_names_of_scopes(peer, name):
    """What would not do in a segment's name, or is ours, is no scope."""
    assert peer.status("createScope", scope(name)) == 3


def test_a_scope_with_streams_stays(stream, stream_info):
    """Not empty: not deleted, unless with all that is in it."""
    assert stream.status("deleteScope", scope("sc")) == 3
    assert stream.status("deleteScopeRecursive", scope("sc")) == 0
    assert stream.status("deleteScopeRecursive", scope("sc")) == 2
    assert stream.service.names == set()
    assert stream.status("createScope", scope("sc")) == 0
    assert names(stream) == []


def test_a_large_scope_is_deleted_in_turns(stream, config):
    """Others have theirs in between; the answer comes when all of it is gone."""
    for number in range(50):
        stream.call("createStream", config(f"s{number}", 2))
    stream.connection.stepwise = True
    before = stream.connection.turns
    answer = stream.send("deleteScopeRecursive", scope("sc").SerializeToString())
    while stream.connection.turn_due:
        assert stream.service.names
        stream.connection.take_turn()
    assert stream.connection.turns - before >= 2
    stream.service.store()
    stream.exchange()
    assert decode("Status", answer.message).status == 0
    assert stream.service.names == set()


def test_scopes_are_listed_page_by_page(peer, monkeypatch):
    """Sorted; behind the last one comes an empty page, and its token is there."""
    monkeypatch.setattr(methods, "_PAGE", 10)
    for number in (3, 7, 1, 0, 2, 9, 10, 8, 5, 6, 4):
        peer.call("createScope", scope(f"s{number:04}"))
    token, pages = "", []
    while True:
        request = new(
            "ScopesRequest", continuation=new("ContinuationToken", token=token)
        )
        found = peer.call("listScopes", request)
        pages.append(list(found.scopes))
        token = found.continuation.token
        if not found.scopes:
            break
    assert [len(page) for page in pages] == [10, 1, 0]
    assert list(itertools.chain(*pages)) == [f"s{number:04}" for number in range(11)]
    assert token == "s0010"


# -- streams ----------------------------------------------------------------------------


def test_a_stream_has_segments(stream, stream_info, config):
    """They are named as clients expect, and share the keys equally."""
    assert stream.service.names == {"sc/st/0.#epoch.0", "sc/st/1.#epoch.0"}
    found = stream.call("getCurrentSegments", stream_info()).ranges
    assert [(each.segment.number, each.low, each.high) for each in found] == [
        (0, 0.0, 0.5),
        (1, 0.5, 1.0),
    ]
    assert {each.segment.stream_info.stream for each in found} == {"st"}
    assert stream.status("createStream", config()) == 2


def test_no_such_stream(stream, stream_info):
    """Questions about one fail with NOT_FOUND; changes say so in their status."""
    none = stream_info("none")
    id_ = new("SegmentId", stream_info=none)
    for method, request in {
        "getCurrentSegments": none,
        "getStreamConfiguration": none,
        "getSegments": new("GetSegmentsRequest", stream_info=none),
        "getEpochSegments": new("GetEpochSegmentsRequest", stream_info=none),
        "getSegmentsImmediatelyFollowing": id_,
        "getSegmentsBetween": new("StreamCutRange", stream_info=none),
        "isSegmentValid": id_,
        "createTransaction": new("CreateTxnRequest", stream_info=none, lease=1),
    }.items():
        assert stream.try_(method, request).status == Code.NOT_FOUND, method
    assert not stream.call("checkStreamExists", none).response
    config = new("StreamConfig", stream_info=none)
    cut = new("StreamCut", stream_info=none)
    assert stream.status("updateStream", config) == 2
    assert stream.status("truncateStream", cut) == 2
    assert stream.status("sealStream", none) == 2
    assert stream.status("deleteStream", none) == 2


def test_no_such_scope(peer, config, stream_info):
    """Changes say that it is the scope."""
    assert peer.status("createStream", config()) == 3
    assert peer.status("updateStream", config()) == 3
    assert peer.status("truncateStream", new("StreamCut", stream_info=stream_info()))
    assert peer.status("sealStream", stream_info()) == 3
    assert peer.status("deleteStream", stream_info()) == 2
    request = new("StreamsInScopeRequest", scope=scope("sc"))
    assert peer.call("listStreamsInScope", request).status == 2


@pytest.mark.parametrize("name", ["", "a/b", "a#b", "x" * 256])
def test_names_of_streams(stream, config, name):
    """What would not do in a segment's name is refused."""
    assert stream.status("createStream", config(name)) == 4


def test_too_many_segments(make_service, config):
    """The limit is that of the segment store; the text names its key."""
    peer = make_service(segments=10).peer()
    peer.call("createScope", scope("sc"))
    assert peer.status("createStream", config("a", 3)) == 0
    answer = peer.try_("createStream", config("b", 4))
    assert answer.status == Code.RESOURCE_EXHAUSTED
    assert "7 segments and 4 more, limit 10 (options.segments)" in answer.text
    answer = peer.try_("createStream", config("b", 10_001))
    assert answer.status == Code.INVALID_ARGUMENT
    assert peer.service.names == {f"sc/a/{number}.#epoch.0" for number in range(3)}


def test_no_segments_are_one(stream, config):
    """A policy that does not say how many."""
    assert stream.status("createStream", config("a", 0)) == 0
    assert "sc/a/0.#epoch.0" in stream.service.names


def test_configuration(stream, stream_info, config):
    """Given back as it was; parts that were not given are there, empty."""
    given = new(
        "StreamConfig",
        stream_info=stream_info("a"),
        scaling=new("ScalingPolicy", kind=2, target_rate=10, scale_factor=2),
        retention=new("RetentionPolicy", kind=2, param=7, max=2**63 - 1),
        timestamp_timeout=5,
        rollover_bytes=6,
    )
    assert stream.status("createStream", given) == 0
    found = stream.call("getStreamConfiguration", stream_info("a"))
    assert found.HasField("tags")
    found.ClearField("tags")
    assert found == given
    bare = stream.call("getStreamConfiguration", stream_info("st"))
    assert bare.HasField("retention")
    other = config("a", 1, "x")
    assert stream.status("updateStream", other) == 0
    found = stream.call("getStreamConfiguration", stream_info("a"))
    assert found.tags.tag == ["x"]
    assert found.scaling.segments == 1
    assert len(stream.call("getCurrentSegments", stream_info("a")).ranges) == 1


def test_tags(stream, config, stream_info):
    """Streams are found by them, as they were given last."""
    stream.call("createStream", config("a", 1, "red", "blue"))
    stream.call("createStream", config("b", 1, "red"))
    assert names(stream) == ["a", "b", "st"]
    assert names(stream, "red") == ["a", "b"]
    assert names(stream, "blue") == ["a"]
    assert names(stream, "none") == []
    stream.call("updateStream", config("a", 1, "green"))
    assert names(stream, "red") == ["b"]
    assert names(stream, token="a") == ["b", "st"]
    assert names(stream, token="st") == []


# -- the end of streams -------------------------------------------------------------------


def test_seal_and_delete(stream, stream_info, config):
    """Sealed, nothing can be written; only then it can be deleted."""
    info, segments = stream_info(), stream.service.container.state.segments
    assert stream.status("deleteStream", info) == 3
    assert stream.status("sealStream", info) == 0
    assert stream.status("sealStream", info) == 0
    assert all(segments[name].closed for name in stream.service.names)
    assert stream.call("getCurrentSegments", info).ranges == []
    assert len(stream.call("getSegments", _at(info)).segments) == 2
    assert stream.status("updateStream", config()) == 4
    assert stream.status("truncateStream", new("StreamCut", stream_info=info)) == 4
    assert stream.status("deleteStream", info) == 0
    assert stream.service.names == set()
    assert stream.status("deleteStream", info) == 2


def _at(info: Any) -> Any:
    return new("GetSegmentsRequest", stream_info=info)


def test_truncate(stream, stream_info):
    """Readers begin at the cut; an older one changes nothing; one that lacks a
    segment, or lies beyond the end, is no cut.
    """
    info, service = stream_info(), stream.service
    service.append("sc/st/0.#epoch.0", bytes(100))
    service.append("sc/st/1.#epoch.0", bytes(50))

    def cut(**places: int) -> int:
        offsets = {int(name[1:]): offset for name, offset in places.items()}
        request = new("StreamCut", stream_info=info, cut=offsets)
        found: int = stream.status("truncateStream", request)
        return found

    assert cut(_0=60, _1=50) == 0
    assert cut(_0=30, _1=0) == 0
    assert cut(_0=60) == 1
    assert cut(_0=60, _1=50, _2=0) == 1
    assert cut(_0=101, _1=50) == 1
    found = stream.call("getSegments", _at(info)).segments
    assert {each.segment.number: each.offset for each in found} == {0: 60, 1: 50}


# -- where they are ---------------------------------------------------------------------------


def test_addresses(stream, stream_info, make_service):
    """As the client calls us, with the segment store's port, or what is advertised."""
    id_ = new("SegmentId", stream_info=stream_info("anything"))
    found = stream.call("getURI", id_)
    assert (found.host, found.port) == ("gateway.example", 12345)
    [server] = stream.call("getControllerServerList", new("ServerRequest")).nodes
    assert (server.host, server.port) == ("gateway.example", 9090)
    other = make_service(advertise=lambda host: ("public.example", 1)).peer()
    found = other.call("getURI", id_)
    assert (found.host, found.port) == ("public.example", 1)


@pytest.mark.parametrize(
    ("authority", "host", "port"),
    [
        ("[2001:db8::1]:99", "2001:db8::1", 99),
        ("[2001:db8::1]", "2001:db8::1", 9090),
        ("localhost", "localhost", 9090),
        ("10.0.0.1:1", "10.0.0.1", 1),
        ("gateway:99999999999", "gateway:99999999999", 9090),
    ],
)
def test_authorities(make_service, authority, host, port):
    """Any form that a client may give our name."""
    peer = make_service().peer(**{":authority": authority})
    [server] = peer.call("getControllerServerList", new("ServerRequest")).nodes
    assert (server.host, server.port) == (host, port)


def test_watermarks(stream, stream_info):
    """A stream for them is there when somebody asks, and goes with its stream; it is
    not listed, and has none for itself.
    """
    mark = stream_info("_MARKst")
    assert len(stream.call("getCurrentSegments", mark).ranges) == 1
    assert len(stream.call("getSegments", _at(mark)).segments) == 1
    assert "sc/_MARKst/0.#epoch.0" in stream.service.names
    assert names(stream) == ["st"]
    for name in ("_MARKnone", "_MARK_MARKst"):
        told = stream.try_("getCurrentSegments", stream_info(name))
        assert told.status == Code.NOT_FOUND
    stream.call("sealStream", stream_info())
    stream.call("deleteStream", stream_info())
    assert stream.service.names == set()


# -- restarts ------------------------------------------------------------------------------------


def test_a_restart_finds_everything(stream, stream_info, config):
    """Scopes, streams, tags, what is sealed, what was deleted."""
    stream.call("createScope", scope("empty"))
    stream.call("createStream", config("a", 3, "red"))
    stream.call("sealStream", stream_info("a"))
    stream.call("sealStream", stream_info("st"))
    stream.call("deleteStream", stream_info("st"))
    again = stream.service.restarted().peer()
    assert again.service.names == stream.service.names
    assert list(again.call("listScopes", new("ScopesRequest")).scopes) == [
        "empty",
        "sc",
    ]
    assert names(again, "red") == ["a"]
    assert again.call("getCurrentSegments", stream_info("a")).ranges == []
    assert again.status("createStream", config("st", 1)) == 0
    assert "sc/st/2.#epoch.0" in again.service.names


def test_a_crash_at_any_change(stream, stream_info, config):
    """Wherever it cuts off, doing the same again gets to the same end."""
    stream.call("sealStream", stream_info())
    stream.call("deleteStream", stream_info())
    stream.call("createStream", config("st", 2))
    wanted = stream.service.names
    for changes in range(len(stream.service.journal.stored)):
        again = stream.service.restarted(changes=changes).peer()
        assert again.status("createScope", scope("sc")) in (0, 2)
        assert again.status("createStream", config("st", 1)) in (0, 2)
        numbers = [
            each.segment.number
            for each in again.call("getCurrentSegments", stream_info()).ranges
        ]
        assert again.service.names >= {f"sc/st/{each}.#epoch.0" for each in numbers}
        again.call("sealStream", stream_info())
        assert again.status("deleteStream", stream_info()) == 0
        assert again.service.names == set()
        assert again.status("createStream", config("st", 2)) == 0
        assert len(again.call("getCurrentSegments", stream_info()).ranges) == 2
    assert len(wanted) == 2


def test_a_deletion_that_a_kill_interrupts(stream, stream_info):
    """Called again it deletes what is left, the stream of watermarks, too."""
    stream.call("getCurrentSegments", stream_info("_MARKst"))
    stream.call("sealStream", stream_info())
    begin = len(stream.service.journal.stored)
    stream.call("deleteStream", stream_info())
    for changes in range(begin, len(stream.service.journal.stored)):
        again = stream.service.restarted(changes=changes).peer()
        assert again.status("deleteStream", stream_info()) == 0
        assert again.service.names == set()


def test_segments_that_were_there_before(peer, config):
    """Made by clients without a controller: a stream of that name has them; one with
    data that is no part of it stays as it is, an empty one is what a crash left.
    """
    container = peer.service.container
    for number in range(4):
        name = f"sc/st/{number}.#epoch.0"
        container.submit(container.state.create(name, 0))
        if number in (0, 2):
            peer.service.append(name, b"data")
    peer.call("createScope", scope("sc"))
    assert peer.status("createStream", config("st", 1)) == 0
    assert peer.service.names == {f"sc/st/{number}.#epoch.0" for number in (0, 2, 3)}


def test_what_is_remembered_is_bounded(make_service):
    """Scopes and configurations are refused when the tables are full; deleting goes on."""
    peer = make_service(table_bytes=1000).peer()
    last = None
    for number in range(9):
        last = peer.try_("createScope", scope(f"s{number}"))
    assert last is not None
    assert last.status == Code.RESOURCE_EXHAUSTED
    assert "options.table_bytes" in last.text
    assert peer.status("deleteScope", scope("s0")) == 0
    assert peer.status("createScope", scope("s9")) == 0


def test_deleted_streams_leave_little(make_service, config, monkeypatch):
    """Hundreds that are made, sealed and deleted, under one name or many, with scopes or
    without, take no more room than the names that are remembered.
    """
    monkeypatch.setattr(catalog_module, "_MOST_NAMES", 4)
    monkeypatch.setattr(catalog_module, "_FORGOTTEN", 2)
    service = make_service(table_bytes=2000)
    peer = service.peer()
    peer.call("createScope", scope("sc"))
    before = service.container.state.table_bytes
    for number in range(435):
        made = config(f"st{number % 100}", 1 + number % 3)
        assert peer.status("createStream", made) == 0
        assert peer.status("sealStream", made.stream_info) == 0
        assert peer.status("deleteStream", made.stream_info) == 0
        if number % 50 == 0:
            assert peer.status("deleteScope", scope("sc")) == 0
            assert peer.status("createScope", scope("sc")) == 0
    assert service.names == set()
    assert service.container.state.table_bytes <= before + 800


def test_a_stream_begins_with_segment_0(make_service, config):
    """Whatever others were deleted before; unless one of its name was, or very many were,
    whose names are forgotten.
    """
    service = make_service()
    peer = service.peer()
    for name in ("sc", "other"):
        peer.call("createScope", scope(name))
    for name in ("gone", "gone"):
        made = config(name, 3)
        assert peer.status("createStream", made) == 0
        assert peer.status("sealStream", made.stream_info) == 0
        assert peer.status("deleteStream", made.stream_info) == 0
    assert peer.status("createStream", config("new", 2)) == 0
    assert peer.status("createStream", config("gone", 1)) == 0
    names = {"sc/new/0.#epoch.0", "sc/new/1.#epoch.0", "sc/gone/6.#epoch.0"}
    assert service.names == names
    after = service.restarted()
    assert after.peer().status("createStream", config("newer", 1)) == 0
    assert after.names == {*names, "sc/newer/0.#epoch.0"}


def test_names_that_are_forgotten_are_not_given_again(
    make_service, config, monkeypatch
):
    """Of very many deleted streams the oldest names go: all new ones begin behind them; so
    in a scope that was made again, and after a restart.
    """
    monkeypatch.setattr(catalog_module, "_MOST_NAMES", 4)
    monkeypatch.setattr(catalog_module, "_FORGOTTEN", 2)
    service = make_service()
    peer = service.peer()
    peer.call("createScope", scope("sc"))
    given = set()
    for number in range(30):
        made = config(f"st{number % 7}", 1 + number % 3)
        assert peer.status("createStream", made) == 0
        assert not service.names & given
        given |= service.names
        if number % 5:
            assert peer.status("sealStream", made.stream_info) == 0
            assert peer.status("deleteStream", made.stream_info) == 0
        else:
            assert peer.status("deleteScopeRecursive", scope("sc")) == 0
            peer.call("createScope", scope("sc"))
        if number % 9 == 0:
            saved = snapshot.save(service.container.state)
            service = make_service(state=snapshot.restore(saved))
            peer = service.peer()
