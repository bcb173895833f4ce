"""docs/rsio-v0.md, tests/vectors/rsio.jsonl and the code say the same."""

import re
from pathlib import Path
from typing import Any

import pytest

from gateway.protocols.rsio import messages, wire
from gateway.protocols.rsio.limits import Limits
from gateway.protocols.rsio.messages import Code, Extension, OnSubscribe, Subscribe
from gateway.protocols.rsio.options import Options

pytestmark = pytest.mark.usefixtures("each_way")

PAGE = (Path(__file__).parents[3] / "docs" / "rsio-v0.md").read_text()

#: What the page calls the fields, where the code is less formal.
_FIELDS = {
    "initialDemand": "demand",
    "elementSize": "size",
    "elementBytes": "element_bytes",
}
_OCTETS = {"data", "instance"}


@pytest.fixture(scope="session")
def vectors(read_vectors) -> list[dict[str, Any]]:
    return read_vectors("rsio")


def _name(code: int) -> str:
    """`ON_NEXT_PART` as `onNextPart`."""
    first, *rest = Code(code).name.lower().split("_")
    return first + "".join(map(str.capitalize, rest))


def _message(vector: dict[str, Any]) -> Any:
    [kind] = [
        kind for code, kind in wire.MESSAGES.items() if _name(code) == vector["message"]
    ]
    fields: dict[str, Any] = {}
    for name, value in vector["fields"].items():
        if name in _OCTETS:
            field = bytes.fromhex(value)
        else:
            field = tuple(value) if name == "extensions" else value
        fields[_FIELDS.get(name, name)] = field
    return kind(**fields)


def _of(vectors: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    found = [vector for vector in vectors if vector["kind"] == kind]
    assert found
    return found


def test_messages(vectors, read):
    """Each message is read as it is meant, and written as it is read."""
    for vector in _of(vectors, "message"):
        octets, message = bytes.fromhex(vector["hex"]), _message(vector)
        assert wire.encode(message) == octets, vector
        assert read(octets) == [message], vector


def test_every_message_has_a_vector(vectors):
    """No type is left out, but blocks: what zlib makes of octets is its business."""
    have = {
        name for vector in vectors for name in vector.get("message", "").split(", ")
    }
    assert {_name(code) for code in Code} - have == {"block"}


def test_elements(vectors, opened, happened):
    """Elements come out whole, in order, whatever they came in."""
    from gateway.protocols.rsio.decoder import elements

    for vector in _of(vectors, "elements"):
        session = opened()
        session.consumer.subscribe("events", 100)
        size = vector["elementSize"]
        started = wire.encode(OnSubscribe(1, size))
        events, why = happened(session, started, bytes.fromhex(vector["hex"]))
        assert why is None
        found = [one for run in events[1:] for one in elements(run.messages, size)]
        assert [one.hex() for one in found] == vector["elements"], vector


def test_varints(vectors):
    """Numbers are read in any length and written in the shortest."""
    for vector in _of(vectors, "varint"):
        octets = bytes.fromhex(vector["hex"])
        assert wire.read_varint(octets, 0) == (vector["value"], len(octets))
        if "shortest" in vector["meaning"]:
            assert wire.varint(vector["value"]) == octets


@pytest.mark.parametrize("step", [1, 2, 10_000])
def test_refusals(vectors, gate, step):
    """What must not be said is answered with goodbye, and the connection closes."""
    for vector in _of(vectors, "refused"):
        connection, _ = gate.connect()
        octets = bytes.fromhex(vector["hex"])
        for at in range(0, len(octets), step):
            connection.deliver(octets[at : at + step])
        assert connection.refused is not None, vector
        assert connection.failure is None
        assert b"\x03" in connection.sent


# The page


def test_the_page_shows_the_vectors(vectors):
    """Every hex string of the page's examples is a vector, word for word."""
    listed = PAGE.split("## Vectors")[1].split("\n## ")[0]
    shown = re.findall(r"^\| `([0-9a-f ]+)` \|", listed, re.MULTILINE)
    known = {vector["hex"] for vector in vectors}
    assert len(shown) > 30
    assert {one.replace(" ", "") for one in shown} <= known


def test_the_page_lists_every_type():
    """Code, name and fields, in the order of the wire."""
    rows = re.findall(r"^\| `0x([0-9a-f]{2})` \| (\w+) \| (.*?) \|", PAGE, re.MULTILINE)
    assert {int(code, 16): name for code, name, _ in rows} == {
        int(code): _name(code) for code in Code
    }
    for code, _, spelled in rows:
        kind = wire.MESSAGES.get(int(code, 16))
        if kind is None:
            continue  # elements and blocks have no class
        fields = [
            _FIELDS.get(field.split()[0], field.split()[0])
            for field in spelled.split(", ")
        ]
        assert fields == list(kind.__struct_fields__), spelled


def test_the_page_lists_every_extension():
    """By number and name."""
    rows = dict(re.findall(r"^\| (\d) \| `(\w+)` \|", PAGE, re.MULTILINE))
    assert {int(number): name.lower() for number, name in rows.items()} == {
        int(each): each.name.lower().replace("_", "") for each in Extension
    }


def test_the_page_states_the_limits():
    """Each limit with its default."""
    rows = dict(re.findall(r"^\| `(\w+)` \| ([\d ]+) \|", PAGE, re.MULTILINE))
    stated = {name: int(value.replace(" ", "")) for name, value in rows.items()}
    limits, options = Limits(), Options()
    for name in Limits.__slots__:
        assert stated.pop(name) == getattr(limits, name), name
    for name, value in stated.items():
        assert value == getattr(options, name), name
    assert {"hello_timeout", "goodbye_timeout", "window"} <= set(stated)


def test_the_example_on_the_page(make_gate):
    """The worked connection is what our server really says, octet for octet."""
    example = PAGE.split("## A whole connection")[1].split("\n## ")[0]
    lines = re.findall(
        r"^    ([PG]) → [PG]  ([0-9a-f ]+?)(?:  |$)", example, re.MULTILINE
    )
    assert len(lines) == 8
    gate = make_gate(window=2, offsets=False, compression=False)
    hears = b""
    for who, octets in lines:
        said = bytes.fromhex(octets)
        if who == "P":
            gate.say(said)
            continue
        gate.journal.store_all()
        hears += said
        assert gate.connection.sent[: len(hears)] == hears
    assert gate.connection.sent == hears
    assert gate.connection.closed
    assert messages.VERSION == 0
    assert wire.encode(Subscribe("events", 1, 2)) in hears
