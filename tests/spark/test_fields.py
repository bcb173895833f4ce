"""Values out of a payload's JSON, against Python's own parser, and whatever breaks."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from typing import Any

import pytest

from gateway.spark import fields

pytestmark = pytest.mark.spark

#: Some lead through others; some differ in case; one has a key without letters.
PATHS = ["a", "b.a", "b.c.a", "b.c", "A", "c", "b.é", "c.", '\\"']
KEYS = ["a", "b", "c", "A", "é", "", '\\"', "b.a", "b.c.a", "b.c", "other"]

Find = Callable[[list[bytes]], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def find(spark: Any) -> Find:
    """The text and the value of each of `PATHS` in each payload."""
    name = fields.function(spark, PATHS)

    def found(payloads: list[bytes]) -> list[dict[str, Any]]:
        rows = spark.createDataFrame(
            list(enumerate(map(bytearray, payloads))), "n int, payload binary"
        )
        made = rows.selectExpr("n", f"{name}(payload) AS j").select("n", "j.*")
        columns = {path: fields.field(n) for n, path in enumerate(PATHS)}
        return [
            {"text": row[fields.TEXT]}
            | {path: row[column] for path, column in columns.items()}
            for row in sorted(made.collect())
        ]

    return found


class Number(str):
    """As it is written."""

    __slots__ = ()


def parsed(text: str) -> Any:
    return json.loads(text, parse_int=Number, parse_float=Number, strict=True)


def expected(document: Any, path: str) -> Any:
    """The value of *path*, by Python's parser: nested before flat."""
    if not isinstance(document, dict):
        return None
    value = document
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    through = any(other.startswith(f"{path}.") for other in PATHS)
    if value is None or (through and isinstance(value, dict)):
        return document.get(path) if "." in path else None
    return value


def same(got: str | None, value: Any) -> bool:
    """Whether *got* is what a column has of *value*."""
    if isinstance(value, (dict, list)):
        return got is not None and parsed(got) == value
    if isinstance(value, bool):
        return got == str(value).lower()
    if isinstance(value, str):  # half a surrogate pair has no UTF-8
        value = re.sub("[\ud800-\udfff]", "?", value)
    return bool(got == value)


def written(dice: random.Random, depth: int) -> str:
    """Any JSON, its keys those of `KEYS` and often twice, with blanks and escapes."""
    blank = dice.choice(["", "", " ", "\n\t"])
    kind = dice.randrange(8 if depth else 5)
    if kind > 5:
        parts = [
            f"{string(dice, dice.choice(KEYS))}{blank}:{blank}{written(dice, depth - 1)}"
            for _ in range(dice.randrange(6))
        ]
        return f"{{{blank}{f'{blank},'.join(parts)}}}"
    if kind == 5:
        parts = [written(dice, depth - 1) for _ in range(dice.randrange(3))]
        return f"[{f',{blank}'.join(parts)}{blank}]"
    if kind > 2:
        some = "".join(dice.choices('ab {}[],:"\\/\n\t\b\f\r\0é€😀\ud800\udc00', k=6))
        return string(dice, some)
    return dice.choice(
        ["null", "true", "false", "0", "-12", "1e400", "0.10", "9" * 42, "1E-3"]
    )


def string(dice: random.Random, text: str) -> str:
    """As a sender may write it: escaped where it must be, or everywhere."""
    whole = json.dumps(text, ensure_ascii=dice.random() < 0.5)
    if dice.random() < 0.1:
        units = text.encode("utf-16-be", "surrogatepass").hex()
        whole = '"' + "".join(rf"\u{unit}" for unit in re.findall("....", units)) + '"'
    return whole.encode("utf-8", "backslashreplace").decode()


def test_values_are_those_that_another_parser_finds(find: Find) -> None:
    """Nested and flat keys, keys twice, escapes, blanks, numbers as they are written."""
    dice = random.Random(7)
    texts = [written(dice, 4) for _ in range(1500)]
    texts = [text for text in texts if text[0] == "{"]
    some = 0
    for text, row in zip(texts, find([text.encode() for text in texts]), strict=True):
        document = parsed(text)
        assert row["text"] == text
        for path in PATHS:
            value = expected(document, path)
            some += value is not None
            assert same(row[path], value), (text, path)
    assert some > 300


def test_whatever_is_no_json_is_still_text(find: Find) -> None:
    """Cut anywhere, or with any byte changed: the text is kept, and nothing raises."""
    dice = random.Random(8)
    broken = [b"", b"\xff", b'{"a": "\xc3"}', b"[", b"{", b'"', b'{"a":"\\u12', b"{,}"]
    broken += [b'{"a": "\\x"}', b'{"a"', b'{"a":}', b"]", b'{"a": "\x01"}', b'{"a":1']
    broken += [
        b'{"a":' * 9000 + b"1" + b"}" * 9000,
        b"[" * 9000,
        b'{"z":' + b"[" * 9000,
    ]
    for _ in range(600):
        good = bytearray(written(dice, 3).encode())
        if dice.random() < 0.5:
            broken.append(bytes(good[: dice.randrange(len(good))]))
        else:
            good[dice.randrange(len(good))] = dice.randrange(256)
            broken.append(bytes(good))
    for sent, row in zip(broken, find(broken), strict=True):
        try:
            assert row["text"] == sent.decode()
        except UnicodeDecodeError:
            assert set(row.values()) == {None}


def test_of_a_list_the_first_object_counts(find: Find) -> None:
    """As Spark's own parser has it; values on their own have no keys."""
    rows = find([b' [ {"a": 1}, {"a": 2}]', b'"a"', b"1", b"null", b"[[1]]"])
    assert [row["a"] for row in rows] == ["1", None, None, None, None]


def stamp(dice: random.Random) -> str:
    """A date and time as somebody may write it, or something close to that."""
    parts = [dice.choice((0, 1, 1969, 1970, 2000, 2024, 2026, 2100, 9999))]
    parts += [dice.randrange(14), dice.choice((0, 1, 28, 29, 30, 31, 32))]
    parts += [dice.choice((0, 12, 23, 24)), *dice.choices((0, 30, 59, 60), k=2)]
    text = "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}".format(*parts)
    text = text.replace("T", dice.choice("TTTT "))
    digits = "".join(dice.choices("0129", k=dice.randrange(11)))
    text += dice.choice(["", f".{digits}", f",{digits}"])
    text += dice.choice(
        ["Z", "Z", "z", "", " Z", "+00:00", "-07:30", "+17:59", "+18:00"]
    )
    if dice.random() < 0.1:
        at = dice.randrange(len(text) + 1)
        text = text[:at] + dice.choice(["", "+", ".", "5", "é", ","]) + text[at + 1 :]
    return text


def test_instants_are_those_that_spark_reads(spark: Any) -> None:
    """Whatever is read here, Spark's cast reads as the same; all others are left to it."""
    dice = random.Random(9)
    texts = [stamp(dice) for _ in range(6000)]
    texts += ["2026-03-01T12:00:00Z", "2024-02-29 23:59:59,123456789-00:30", "", "2026"]
    name = fields.function(spark, ["t", "u"], [0])
    rows = spark.createDataFrame(
        [(n, bytearray(json.dumps({"t": t}).encode())) for n, t in enumerate(texts)],
        "n int, payload binary",
    )
    made = rows.selectExpr("n", f"{name}(payload) AS j").selectExpr(
        "n",
        f"j.{fields.field(0)} AS text",
        f"j.{fields.micros(0)} AS ours",
        f"unix_micros(try_cast(replace(j.{fields.field(0)}, ',', '.') AS timestamp))"
        " AS theirs",
    )
    found = sorted(made.collect())
    assert [row.text for row in found] == texts
    read = [row for row in found if row.ours is not None]
    assert [row for row in read if row.ours != row.theirs] == []
    assert len(read) > 300
    assert [row.ours for row in found[-4:]] == [
        1_772_366_400_000_000,
        1_709_252_999_123_456,
        None,
        None,
    ]
