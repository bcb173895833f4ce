"""The tables of docs/pravega.md (calls and commands, behaviours) are complete, and true."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.protocols.pravega import codec, wire_segments, wire_tables
from gateway.protocols.pravega.controller.access import Kind, Resource
from gateway.protocols.pravega.controller.call_permissions import CALLS
from gateway.protocols.pravega.errors import Need
from pravega_messages import new

HERE = Path(__file__).parent
DECLARED_IN = (wire_segments, wire_tables)
"""With `wire`, which they import."""
PAGE = HERE.parents[2] / "docs" / "pravega.md"
ROW = re.compile(r"^\| `(\w+)` \| ([^|]+) \| (\w+): `(\w+)` \|$", re.MULTILINE)

NEEDS = {
    Need.READ: "`read`",
    Need.WRITE: "`write`",
    Need.MANAGE: "`manage`",
    Need.ANY: "any of the three",
    Need.USE: "any",
}
OTHERS = {
    "getDelegationToken": "what it is wanted for, else any",
    "AppendBlock": "as `SetupAppend`",
    "AppendBlockEnd": "as `SetupAppend`",
    "ConditionalAppend": "as `SetupAppend`",
    "ConditionalBlockEnd": "as `SetupAppend`",
    "TruncateSegment": "`manage`; of a revisioned stream `write`",
}
"""What no table of permissions says by itself."""


def section() -> str:
    """The page's."""
    return PAGE.read_text().partition("## Calls and commands")[2].partition("\n## ")[0]


ROWS = {name: (asks, file, test) for name, asks, file, test in ROW.findall(section())}


def names() -> Iterator[str]:
    """Of all calls and commands, in the order of their tables."""
    yield from CALLS
    for kind in codec.NEEDS:
        yield kind.__name__


def asked_of(need: Need, what: Resource) -> str:
    if what.kind is Kind.GROUP:
        return "`groups`"
    return NEEDS[need] + (" of the scope" if what.kind is Kind.SCOPE else "")


def asks(name: str) -> str:
    """What the code asks for, as the page says it."""
    if name in OTHERS:
        return OTHERS[name]
    if name in CALLS:
        asked = list(CALLS[name](_Anything()))
        return ", ".join(asked_of(*each) for each in asked) or "nothing"
    kind = next(each for each in codec.NEEDS if each.__name__ == name)
    need = codec.NEEDS[kind]
    return "nothing" if need is None else NEEDS[need]


class _Anything:
    """A request that has every field."""

    def __getattr__(self, name: str) -> Any:
        info = new("StreamInfo", scope="shop", stream="orders")
        cut = new("StreamCut", stream_info=info)
        return {
            "stream_info": info, "begin": [cut], "end": (),
            "position": cut, "stream_cut": cut,
        }.get(name, "shop")  # fmt: skip


def test_none_is_missing():
    """Whatever the gateway serves has its row, and nothing else has one."""
    assert sorted(ROWS) == sorted(names())
    assert {kind.__name__ for kind in codec.REQUESTS.values()} < set(ROWS)


@pytest.mark.parametrize("name", list(names()))
def test_its_row_is_true(name):
    """It says what the code asks for, and a test of this name is in a file that makes such
    calls.
    """
    told, file, test = ROWS[name]
    assert told == asks(name)
    folder = HERE / "controller" if name in CALLS else HERE
    source = (folder / f"test_{file}.py").read_text()
    assert f"\ndef {test}(" in source
    assert (f'"{name}"' if name in CALLS else f"{name}(") in source


BEHAVIOURS = {
    int(number): tests
    for number, tests in re.findall(
        r"^\| (\d+) \| [^|]+ \| (.+) \|$",
        PAGE.read_text().partition("## Behaviours")[2],
        re.MULTILINE,
    )
}


def test_no_behaviour_is_missing():
    """Each sentence has its row."""
    assert list(BEHAVIOURS) == list(range(1, 64))


@pytest.mark.parametrize("number", BEHAVIOURS)
def test_its_tests_exist(number):
    """A row names files of this directory and functions in them."""
    for group in BEHAVIOURS[number].split("; "):
        file, _, names = group.rpartition(": ")
        if not file:
            assert (HERE.parents[2] / group.strip("`")).exists()
            continue
        source = (HERE / f"test_{file}.py").read_text()
        for name in names.split(", "):
            assert f"\ndef {name.strip('`')}(" in source
