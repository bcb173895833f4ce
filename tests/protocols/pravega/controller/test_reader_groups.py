"""Reader groups of Java clients."""

from typing import Any

import pytest

from pravega_messages import new


@pytest.fixture
def group(stream_info) -> Any:
    """A configuration of group `g`, which reads `sc/st` and tells how far."""
    begin = new("StreamCut", stream_info=stream_info(), cut={0: 0, 1: 0})
    return new(
        "ReaderGroupConfiguration",
        scope="sc",
        name="g",
        refresh_ms=3000,
        retention=2,
        id="11111111-1111-1111-1111-111111111111",
        begin=[begin],
    )


def info(group: Any, **changes: Any) -> Any:
    fields = {"scope": "sc", "name": "g", "id": group.id} | changes
    return new("ReaderGroupInfo", **fields)


def test_a_group(stream, group, stream_info):
    """Made with the stream for its state; who makes it again gets what is there."""
    made = stream.call("createReaderGroup", group)
    assert (made.status, made.config) == (0, group)
    assert len(stream.call("getCurrentSegments", stream_info("_RGg")).ranges) == 1
    other = new("ReaderGroupConfiguration", scope="sc", name="g", id="other")
    made = stream.call("createReaderGroup", other)
    assert (made.status, made.config) == (0, group)
    found = stream.call("getReaderGroupConfig", info(group))
    assert (found.status, found.config) == (0, group)


def test_no_such_group(stream, group):
    """Every call says so, and creating says what is wrong with where."""
    found = stream.call("getReaderGroupConfig", info(group))
    assert (found.status, found.config.name) == (2, "g")
    assert stream.call("updateReaderGroup", group).status == 2
    assert stream.status("deleteReaderGroup", info(group)) == 2
    group.scope = "none"
    assert stream.call("createReaderGroup", group).status == 2
    group.scope, group.name = "sc", "a/b"
    assert stream.call("createReaderGroup", group).status == 3


def test_update(stream, group):
    """Each one has a generation; who has not seen the last one is turned away."""
    stream.call("createReaderGroup", group)
    group.refresh_ms = 5
    found = stream.call("updateReaderGroup", group)
    assert (found.status, found.generation) == (0, 1)
    found = stream.call("updateReaderGroup", group)
    assert (found.status, found.generation) == (3, 1)
    config = stream.call("getReaderGroupConfig", info(group)).config
    assert (config.refresh_ms, config.generation) == (5, 1)


def test_delete(stream, group):
    """Only the one that is meant; with its stream, also where a kill cuts the call off, and
    it is called again, or the group is made again; the scope is empty then.
    """
    before = stream.service.names
    stream.call("createReaderGroup", group)
    scope = new("ScopeInfo", scope="sc")
    assert stream.status("deleteReaderGroup", info(group, id="other")) == 2
    begin = len(stream.service.journal.stored)
    assert stream.status("deleteReaderGroup", info(group)) == 0
    assert stream.service.names == before
    for changes in range(begin, len(stream.service.journal.stored)):
        again = stream.service.restarted(changes=changes).peer()
        assert again.call("createReaderGroup", group).status == 0
        [state] = again.service.names - before
        assert state.startswith("sc/_RGg/")
        again = stream.service.restarted(changes=changes).peer()
        assert again.status("deleteReaderGroup", info(group)) == 0
        assert again.service.names == before
    assert stream.status("deleteScope", scope) == 3
    assert stream.status("deleteScopeRecursive", scope) == 0


def test_a_scope_with_groups_is_deleted_with_them(stream, group):
    """Nothing of them comes back with a scope of that name; nor their state with another
    group of that name, where a kill cuts the call off.
    """
    stream.call("createReaderGroup", group)
    stream.service.append("sc/_RGg/0.#epoch.0", b"state")
    scope = new("ScopeInfo", scope="sc")
    begin = len(stream.service.journal.stored)
    assert stream.status("deleteScopeRecursive", scope) == 0
    assert stream.service.names == set()
    other = new("ReaderGroupConfiguration", scope="sc", name="g", id="other")
    for changes in range(begin, len(stream.service.journal.stored)):
        again = stream.service.restarted(changes=changes).peer()
        made = again.call("createReaderGroup", other).config
        [name] = [one for one in again.service.names if one.startswith("sc/_RGg/")]
        state = again.service.container.state.find(name)
        assert (made.id == "other") == (not state.length)
    stream.call("createScope", scope)
    again = stream.service.restarted().peer()
    assert again.call("getReaderGroupConfig", info(group)).status == 2


def test_subscribers(stream, group, stream_info):
    """Groups of any scope that tell how far they have read are listed with their stream."""
    stream.call("createReaderGroup", group)
    quiet = new("ReaderGroupConfiguration")
    quiet.CopyFrom(group)
    quiet.name, quiet.retention = "quiet", 0
    stream.call("createReaderGroup", quiet)
    stream.call("createScope", new("ScopeInfo", scope="other"))
    group.scope = "other"
    stream.call("createReaderGroup", group)
    found = stream.call("listSubscribers", stream_info())
    assert (found.status, list(found.subscribers)) == (0, ["other/g", "sc/g"])
    assert stream.call("listSubscribers", stream_info("none")).status == 2


def test_how_far_they_have_read(stream, group, stream_info):
    """Taken from the group itself only, of the right generation, and kept."""
    stream.call("createReaderGroup", group)

    def tell(**changes: Any) -> int:
        fields = {
            "subscriber": "sc/g",
            "id": group.id,
            "stream_cut": new("StreamCut", stream_info=stream_info(), cut={0: 1, 1: 1}),
        } | changes
        request = new("SubscriberStreamCut", **fields)
        found: int = stream.status("updateSubscriberStreamCut", request)
        return found

    assert tell() == 0
    assert tell(subscriber="g") == 0
    assert tell(generation=1) == 5
    assert tell(id="other") == 5
    assert tell(subscriber="sc/none") == 3
    empty = new("StreamCut", stream_info=stream_info())
    assert tell(stream_cut=empty) == 1
    other = new("StreamCut", stream_info=stream_info("none"), cut={0: 1})
    assert tell(stream_cut=other) == 2
    again = stream.service.restarted()
    assert set(again.controller._catalog.scopes["sc"].groups["g"].cuts) == {"sc/st"}


def test_a_restart_keeps_them(stream, group):
    """Configuration and generation."""
    stream.call("createReaderGroup", group)
    stream.call("updateReaderGroup", group)
    again = stream.service.restarted().peer()
    assert again.call("getReaderGroupConfig", info(group)).config.generation == 1


def test_a_group_that_an_old_client_deletes(stream, group, stream_info):
    """Clients of before 0.9 delete its stream, and know of nothing else: the group is gone,
    and any client makes it again.
    """
    stream.call("createReaderGroup", group)
    assert stream.status("sealStream", stream_info("_RGg")) == 0
    assert stream.status("deleteStream", stream_info("_RGg")) == 0
    assert stream.call("getReaderGroupConfig", info(group)).status == 2
    assert not stream.call("listSubscribers", stream_info()).subscribers
    group.id = "22222222-2222-2222-2222-222222222222"
    made = stream.call("createReaderGroup", group)
    assert (made.status, made.config) == (0, group)
    assert len(stream.call("getCurrentSegments", stream_info("_RGg")).ranges) == 1
