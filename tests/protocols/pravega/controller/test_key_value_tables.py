"""Key-value tables, by the calls that Java clients make; `test_requests` has the entries."""

from typing import Any

import pytest

from gateway.protocols.pravega.controller.grpc import Code
from gateway.protocols.pravega.errors import Need
from pravega_messages import new

EXISTS, NO_SCOPE, BAD_NAME, NOT_FOUND = 2, 3, 4, 2


def table(name: str = "t", partitions: int = 2, *keys: int, scope: str = "sc") -> Any:
    primary, secondary = keys or (4, 2)
    return new(
        "KeyValueTableConfig", scope=scope, name=name, partitions=partitions,
        primary_bytes=primary, secondary_bytes=secondary, rollover_bytes=7,
    )  # fmt: skip


def info(name: str = "t", scope: str = "sc") -> Any:
    return new("KeyValueTableInfo", scope=scope, name=name)


def names(peer: Any, token: str = "") -> list[str]:
    request = new(
        "KeyValueTablesRequest", scope={"scope": "sc"}, continuation={"token": token}
    )
    found = peer.call("listKeyValueTablesInScope", request)
    assert found.HasField("continuation")
    return [each.name for each in found.tables]


def test_made_found_and_deleted(stream):
    """Once; with segments that are tables of keys of both sizes together, under the name
    that clients make of the table's.
    """
    assert stream.status("createKeyValueTable", table()) == 0
    assert stream.status("createKeyValueTable", table()) == EXISTS
    assert names(stream) == ["t"]
    assert names(stream, "t") == []
    found = stream.call("getCurrentSegmentsKeyValueTable", info()).ranges
    assert [(each.segment.number, each.low, each.high) for each in found] == [
        (1, 0, 0.5),
        (2, 0.5, 1),
    ]
    assert {each.segment.stream_info.stream for each in found} == {"t"}
    state = stream.service.container.state
    made = {"sc/t_kvtable/1.#epoch.0", "sc/t_kvtable/2.#epoch.0"}
    assert made < stream.service.names
    assert {state.table(each).key_bytes for each in made} == {6}
    config = stream.call("getKeyValueTableConfiguration", info())
    assert (config.status, config.config) == (0, table())
    assert stream.status("deleteKeyValueTable", info()) == 0
    assert stream.status("deleteKeyValueTable", info()) == NOT_FOUND
    assert not made & stream.service.names
    assert names(stream) == []
    again = stream.call("getKeyValueTableConfiguration", info())
    assert again.status == NOT_FOUND
    told = stream.try_("getCurrentSegmentsKeyValueTable", info())
    assert (told.status, told.text) == (Code.NOT_FOUND, "no key-value table sc/t")


def test_what_is_no_table(stream, config):
    """A scope that is not there, a name that would not do, or whose segments a stream
    has; and no stream gets the names of a table's.
    """
    assert stream.status("createKeyValueTable", table(scope="none")) == NO_SCOPE
    assert stream.status("createKeyValueTable", table("a/b")) == BAD_NAME
    assert stream.status("createStream", config("x_kvtable")) == 0
    assert stream.status("createKeyValueTable", table("x")) == BAD_NAME
    assert stream.status("createKeyValueTable", table("y")) == 0
    assert stream.status("createStream", config("y_kvtable")) == BAD_NAME
    request = new("KeyValueTablesRequest", scope={"scope": "none"})
    assert stream.call("listKeyValueTablesInScope", request).status == NOT_FOUND


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (table("t", 1, 0, 4), "needs a primary key"),
        (table("t", 1, 4, -1), "no key has less than 0 bytes"),
        (table("t", 1, 8192, 1), "keys of 8193 bytes, limit 8192"),
        (table("t", 1001), "1001 partitions, limit 1000"),
    ],
)
def test_sizes(stream, asked, why):
    """Refused at once, with the reason."""
    told = stream.try_("createKeyValueTable", asked)
    assert told.status == Code.INVALID_ARGUMENT
    assert why in told.text


def test_no_room(make_service):
    """The limit is that of the segment store."""
    peer = make_service(segments=7).peer()
    peer.call("createScope", new("ScopeInfo", scope="sc"))
    told = peer.try_("createKeyValueTable", table("t", 4))
    assert told.status == Code.RESOURCE_EXHAUSTED
    assert "(options.segments)" in told.text
    assert names(peer) == []


def test_a_scope_with_tables_stays(stream):
    """Unless it is deleted with all that is in it."""
    scope = new("ScopeInfo", scope="other")
    assert stream.status("createScope", scope) == 0
    assert stream.status("createKeyValueTable", table(scope="other")) == 0
    assert stream.status("deleteScope", scope) == 3
    assert stream.status("deleteScopeRecursive", scope) == 0
    assert not [name for name in stream.service.names if name.startswith("other/")]


def test_after_a_restart(stream):
    """Wherever the journal ends, the call can be repeated, and nothing is left over; and
    a table that is made again has other segments.
    """
    begin = len(stream.service.journal.stored)
    assert stream.status("createKeyValueTable", table()) == 0
    expected = stream.service.names
    for changes in range(begin, len(stream.service.journal.stored) + 1):
        again = stream.service.restarted(changes=changes).peer()
        assert again.status("createKeyValueTable", table()) in (0, EXISTS)
        assert again.service.names == expected
        assert names(again) == ["t"]
    assert again.status("deleteKeyValueTable", info()) == 0
    assert again.status("createKeyValueTable", table()) == 0
    assert "sc/t_kvtable/3.#epoch.0" in again.service.names


def test_a_token_for_a_table(make_service):
    """Java asks for one by the table's name, and sends it with the segments'."""
    service = make_service(users={"ann": "secret"})
    controller = service.controller
    token = controller.tokens.make("sc", "t", "ann")
    assert controller.tokens.check(token, "sc/t_kvtable/1.#epoch.0", Need.WRITE) is None
    assert controller.tokens.check(token, "sc/t/1.#epoch.0", Need.WRITE) is None
    assert (
        controller.tokens.check(token, "sc/tt_kvtable/1.#epoch.0", Need.WRITE)
        is not None
    )
