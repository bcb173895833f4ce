"""Every stream in tests/vectors/lumberjack.jsonl leads to what its `want` says."""

from typing import Any

import pytest

pytestmark = pytest.mark.usefixtures("each_way")


@pytest.fixture(scope="session")
def vectors(read_vectors) -> list[dict[str, Any]]:
    return read_vectors("lumberjack")


def _check(found: Any, vector: dict[str, Any]) -> None:
    want = vector["want"]
    assert found.acks.hex() == want["acks"]
    payloads = [payload.decode("latin-1") for payload, *_ in found.events]
    # An event is spelled as text; bytes that are no UTF-8 as Latin-1.
    spelled = [text.encode().decode("latin-1") for text in want["events"]]
    assert [a in (b, c) for a, b, c in zip(payloads, spelled, want["events"],
                                           strict=True)] == [True] * len(payloads)  # fmt: skip
    flaws = {str(row): event[2] for row, event in enumerate(found.events) if event[2]}
    assert flaws == want.get("flaws", {})
    types = {
        str(row): event[3]
        for row, event in enumerate(found.events)
        if event[3] != "application/json"
    }
    assert types == want.get("content_types", {})
    if "refusal" in want:
        assert want["refusal"] in (found.refusal or "accepted")
    else:
        assert found.refusal is None


def test_whole(outcome, vectors):
    """Each stream, in one piece, is acknowledged, stored or refused as wanted."""
    assert len(vectors) > 70
    for vector in vectors:
        _check(outcome([bytes.fromhex(vector["hex"])]), vector)


def test_byte_by_byte(outcome, vectors):
    """… byte by byte as well."""
    for vector in vectors:
        stream = bytes.fromhex(vector["hex"])
        _check(outcome([stream[at : at + 1] for at in range(len(stream))]), vector)


def test_every_split(outcome, vectors):
    """… and in two pieces, cut anywhere."""
    for vector in vectors:
        stream = bytes.fromhex(vector["hex"])
        for cut in range(len(stream) + 1):
            _check(outcome([stream[:cut], stream[cut:]]), vector)


def test_the_rows_are_all_there(vectors):
    """No row of the research is forgotten (25 is about encoding: test_wire)."""
    rows = {vector["row"] for vector in vectors}
    assert rows >= {str(row) for row in range(1, 25)}


@pytest.mark.parametrize("cut", ["whole", "bytes"])
def test_through_the_server(make_reader, vectors, cut):
    """The server sends those acknowledgements once all is durable, then refuses."""
    for vector in vectors:
        reader = make_reader()
        stream = bytes.fromhex(vector["hex"])
        step = len(stream) or 1 if cut == "whole" else 1
        for at in range(0, len(stream), step):
            reader.deliver(stream[at : at + step])
        want = vector["want"]
        if reader.journal.pending:
            assert not reader.sent.startswith(bytes.fromhex(want["acks"]))
            assert reader.connection.waiting
        reader.journal.store_all()
        assert reader.sent.hex() == want["acks"]
        assert reader.connection.counted == len(want["events"])
        assert (reader.connection.refused is not None) == ("refusal" in want)
        assert reader.connection.failure is None
        assert not reader.connection.waiting
