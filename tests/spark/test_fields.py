"""Values out of a payload's JSON, against Python's own parser, and whatever breaks."""

import json
import random
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gateway.sdk.payload import DEPTH, flaw_of
from gateway.spark.rows import fields

pytestmark = pytest.mark.spark

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

#: Some lead through others; some differ in case; one has a key without letters, one a key
#: with a dot in it.
PATHS = {
    path: tuple(path.split(".")) for path in ("a", "b.a", "b.c.a", "b.c", "A", "c")
}
PATHS |= {"b.é": ("b", "é"), "c.": ("c", ""), '\\"': ('\\"',), 'b."c.a"': ("b", "c.a")}
KEYS = ["a", "b", "c", "A", "é", "", '\\"', "b.a", "b.c.a", "b.c", "c.a", "other"]


def ways(keys: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """As which keys of a JSON a path may be written: shortest first."""
    for first in range(1, len(keys) + 1):
        name = ".".join(keys[:first])
        for rest in ways(keys[first:]) if keys[first:] else [()]:
            yield (name, *rest)


#: What other keys are looked for below: an object there is no value.
THROUGH = {
    way[:depth]
    for keys in PATHS.values()
    for way in ways(keys)
    for depth in range(1, len(way))
}

Find = Callable[[list[bytes]], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def find(spark) -> Find:
    """The text and the value of each of `PATHS` in each payload."""
    name = fields.function(spark, [*PATHS.values()])

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
    """The value of *path*, by Python's parser: of several ways to write it the first."""
    for way in ways(PATHS[path]):
        value = document
        for key in way:
            value = value.get(key) if isinstance(value, dict) else None
        if value is not None and not (way in THROUGH and isinstance(value, dict)):
            return value
    return None


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


def test_values_are_those_that_another_parser_finds(find):
    """Nested keys and flat ones at any level, keys twice, escapes, blanks, numbers as they
    are written."""
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


VALUE = re.compile(
    r'("(?:[^"\\]|\\.)*")(\s*:)?|true|false|null|-?[\d.]+(?:[eE][-+]?\d+)?'
)


def like(dice: random.Random, text: str) -> str:
    """With some of its values changed, and sometimes cut, or with one byte of another."""

    def value(found: re.Match[str]) -> str:
        key = found[2] is not None
        return found[0] if key or dice.random() < 0.7 else written(dice, 1)

    made = VALUE.sub(value, text)
    if dice.random() < 0.2:  # as another serializer writes it
        made = re.sub(r"(?<=[:,])(?=.)", lambda _: dice.choice(["", "", " "]), made)
    kind = dice.randrange(20)
    if kind == 0:
        return made[: dice.randrange(len(made))]
    if kind == 1:
        at = dice.randrange(len(made))
        return made[:at] + dice.choice('{}[]",:a ') + made[at + 1 :]
    return made


def test_what_came_before_changes_no_value(find):
    """Payloads that are alike are read by what the one before said; in any other order, and
    by another parser, they have the same values."""
    dice = random.Random(11)
    texts = []
    while len(texts) < 4000:
        text = written(dice, 4)
        if text[0] == "{" and len(text) > 40:
            texts += [like(dice, text) for _ in range(dice.randrange(20))]
    rows = find([text.encode() for text in texts])
    order = dice.sample(range(len(texts)), len(texts))
    others = find([texts[n].encode() for n in order])
    assert [rows[n] for n in order] == others
    some = 0
    for text, row in zip(texts, rows, strict=True):
        try:
            document = parsed(text)
        except ValueError:
            continue
        for path in PATHS:
            value = expected(document, path)
            some += value is not None
            assert same(row[path], value), (text, path)
    assert some > 3000


def test_whatever_is_no_json_is_still_text(find):
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


def test_values_are_found_as_deep_as_they_may_be(find):
    """What has no flaw for its depth has its values, before the deepest one and behind it."""
    deep = "[" * (DEPTH - 2) + "]" * (DEPTH - 2)
    text = f'{{"a":1,"b":{{"c":{deep}}},"c":2}}'
    assert flaw_of(text.encode(), 1 << 20) is None
    [row] = find([text.encode()])
    assert (row["a"], row["b.c"], row["c"]) == ("1", deep, "2")


def test_of_a_list_the_first_object_counts(find):
    """As Spark's own parser has it; values on their own have no keys."""
    rows = find([b' [ {"a": 1}, {"a": 2}]', b'"a"', b"1", b"null", b"[[1]]"])
    assert [row["a"] for row in rows] == ["1", None, None, None, None]


def stamp(dice: random.Random) -> str:
    """A date and time as somebody may write it, or something close to that."""
    year = dice.choice((0, 1, 1969, 1970, 2000, 2024, 2026, 2100, 9999))
    month, day = dice.randrange(14), dice.choice((0, 1, 28, 29, 30, 31, 32))
    week, weekday = dice.choice((0, 1, 52, 53, 54)), dice.randrange(9)
    dash, colon = dice.choice(["--", "--", ""]), dice.choice([":", ":", ":", ""])
    text = dice.choice(
        [f"{year:04}{dash[:1]}{month:02}{dash[:1]}{day:02}"] * 4
        + [f"{year:04}{dash[:1]}W{week:02}{dash[:1]}{weekday}"]
    )
    if dice.random() < 0.95:
        clock = [dice.choice((0, 12, 23, 24)), *dice.choices((0, 30, 59, 60), k=2)]
        parts = [f"{part:02}" for part in clock[: dice.choice((1, 2, 3, 3, 3, 3))]]
        text += dice.choice("TTTTt ") + colon.join(parts)
        digits = "".join(dice.choices("0129", k=dice.randrange(11)))
        text += dice.choice(["", "", f".{digits}", f",{digits}"])
        text += dice.choice(
            [
                "Z",
                "Z",
                "z",
                "",
                " Z",
                "+00:00",
                "-07:30",
                "+17:59",
                "+18:00",
                "-0730",
                "+05",
            ]
        )
    if dice.random() < 0.1:
        at = dice.randrange(len(text) + 1)
        text = text[:at] + dice.choice(["", "+", ".", "5", "é", ","]) + text[at + 1 :]
    return text


@pytest.fixture(scope="module")
def instants(spark) -> Callable[[list[str]], list[Any]]:
    """For each text what is read of it here, and what Spark's cast reads."""
    name = fields.function(spark, [("t",), ("u",)], [0])

    def found(texts: list[str]) -> list[Any]:
        rows = spark.createDataFrame(
            [
                (n, bytearray(json.dumps({"t": t}).encode()))
                for n, t in enumerate(texts)
            ],
            "n int, payload binary",
        )
        made = rows.selectExpr("n", f"{name}(payload) AS j").selectExpr(
            "n",
            f"j.{fields.field(0)} AS text",
            f"j.{fields.micros(0)} AS ours",
            f"unix_micros(try_cast(replace(j.{fields.field(0)}, ',', '.') AS timestamp))"
            " AS theirs",
        )
        return sorted(made.collect())

    return found


def by_python(text: str) -> int | None:
    """What Python's reader of ISO 8601 makes of it; a fraction of an hour or of a minute it
    takes for one of a second."""
    if re.search(r"[Tt ]\d\d(:?\d\d)?[.,]", text):
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (at.replace(tzinfo=at.tzinfo or UTC) - EPOCH) // timedelta(microseconds=1)


def test_instants_are_those_that_others_read(instants):
    """Whatever Spark's cast or Python's reader of ISO 8601 understand as well, they read as
    the same."""
    dice = random.Random(9)
    texts = [stamp(dice) for _ in range(8000)]
    found = instants(texts)
    assert [row.text for row in found] == texts
    read = [row for row in found if row.ours is not None]
    by_spark = [row for row in read if row.theirs is not None]
    assert [row for row in by_spark if row.ours != row.theirs] == []
    pythons = [(row, by_python(row.text)) for row in read]
    assert [row for row, at in pythons if at not in (None, row.ours)] == []
    assert len(by_spark) > 300
    assert sum(row.theirs is None and at is not None for row, at in pythons) > 300


#: A text, and the instant that it is; None where it is none.
INSTANTS: list[tuple[str, str | None]] = [
    ("2026-03-01T12:00:00Z", "2026-03-01T12:00:00"),
    ("2024-02-29 23:59:59,123456789-00:30", "2024-03-01T00:29:59.123456"),
    ("2026-03-01t12:00:00z", "2026-03-01T12:00:00"),
    ("2026-03-01T12:00Z", "2026-03-01T12:00:00"),
    ("2026-03-01T12:00", "2026-03-01T12:00:00"),
    ("2026-03-01T12+01", "2026-03-01T11:00:00"),
    ("2026-03-01", "2026-03-01T00:00:00"),
    ("20260301T120000Z", "2026-03-01T12:00:00"),
    ("20260301T120000.25+0100", "2026-03-01T11:00:00.250000"),
    ("2026-060T12:00:00Z", "2026-03-01T12:00:00"),
    ("2024-366", "2024-12-31T00:00:00"),
    ("2026060T1200", "2026-03-01T12:00:00"),
    ("2026-W09-7T12:00:00Z", "2026-03-01T12:00:00"),
    ("2020W537", "2021-01-03T00:00:00"),
    ("2026-W53-1", "2026-12-28T00:00:00"),
    ("2026-02-28T24:00:00Z", "2026-03-01T00:00:00"),
    ("2026-12-31T24:00", "2027-01-01T00:00:00"),
    ("2016-12-31T23:59:60Z", "2017-01-01T00:00:00"),
    ("2016-12-31T23:59:60.5Z", "2017-01-01T00:00:00.500000"),
    ("2026-03-01T12:30,5Z", "2026-03-01T12:30:30"),
    ("2026-03-01T12.5", "2026-03-01T12:30:00"),
    *((text, None) for text in ("", "2026", "20260301", "2026060", "2026-03", "T12")),
    *((text, None) for text in ("2026-366", "2026-W54-1", "2025-W53-1", "2026-W09-0")),
    *((text, None) for text in ("2026-03-01T24:00:01Z", "2026-03-01T12:60:00Z")),
    *((text, None) for text in ("2026-03-01T", "2026-03-01Z", "2026-03-01T12:00:00.")),
    *((text, None) for text in ("2026-03-01T12:00:00+24:00", "1772366.5", "1e9")),
]


def test_instants_that_standards_allow(instants):
    """RFC 3339 and ISO 8601: small letters, no seconds, basic, ordinal and week dates, a
    date alone, 24:00, leap seconds; what may be any number, or is half a date, is none."""

    def micros(iso: str) -> int:
        since = datetime.fromisoformat(iso + "+00:00") - EPOCH
        return since // timedelta(microseconds=1)

    rows = instants([text for text, _ in INSTANTS])
    found = [(text, row.ours) for (text, _), row in zip(INSTANTS, rows, strict=True)]
    assert found == [(text, iso and micros(iso)) for text, iso in INSTANTS]


def shuffled(dice: random.Random, value: Any) -> str:
    """As JSON, the keys of each object in another order, with other blanks."""
    blank = dice.choice(["", " ", "\n"])
    if isinstance(value, dict):
        members = [
            f"{json.dumps(key)}:{blank}{shuffled(dice, one)}"
            for key, one in value.items()
        ]
        dice.shuffle(members)
        return f"{{{blank}{f',{blank}'.join(members)}{blank}}}"
    if isinstance(value, list):
        parts = [shuffled(dice, one) for one in value]
        return f"[{blank}{f',{blank}'.join(parts)}]"
    return json.dumps(value)


def changed(dice: random.Random, value: Any) -> Any:
    """Another value in one place; in a list perhaps only in another order."""
    if isinstance(value, dict) and value:
        key = dice.choice([*value])
        return {**value, key: changed(dice, value[key])}
    if isinstance(value, list) and value:
        at = dice.randrange(len(value))
        return [*value[:at], changed(dice, value[at]), *value[at + 1 :]]
    return "other" if value != "other" else 1


def test_contents_are_told_whatever_the_order_of_keys(spark):
    """An event that is sent again by a program whose maps have no order is the same; any
    other value, order of a list or level of a key is not, nor is what is no JSON."""
    dice = random.Random(10)
    pairs = [
        ('{"a": [1, 2]}', '{"a": [2, 1]}', False),
        ('{"a": {"b": 1}, "c": 2}', '{"a": {"c": 2}, "b": 1}', False),
        ('{"a": 1, "b": 2}', '{"a": 2, "b": 1}', False),
        ('{"a": {}}', '{"a": []}', False),
        ('{"a": [[], 1]}', '{"a": [[1]]}', False),
        ('{"a"', '{"a"', True),
        ('{"a"', '{"a" ', False),
        ("[" * 9000 + "]" * 9000, "[" * 9000 + "]" * 9000, True),
        ("[" * 9000 + "]" * 9000, "[" * 8999 + "]" * 8999, False),
    ]
    for _ in range(300):
        text = written(dice, 4)
        value = (
            json.loads(text)
            if text[0] == "{"
            else {"a": {"b": [1, {"c": text, "d": 2}]}}
        )
        one, other = shuffled(dice, value), shuffled(dice, value)
        pairs += [
            (one, other, True),
            (one, shuffled(dice, changed(dice, value)), False),
        ]
    name = fields.function(spark, [("a",)], contents=True)
    rows = spark.createDataFrame(
        [
            (n, *(bytearray(text.encode("utf-8", "replace")) for text in pair[:2]))
            for n, pair in enumerate(pairs)
        ],
        "n int, one binary, other binary",
    )
    same = f"{name}(one).{fields.CONTENTS} = {name}(other).{fields.CONTENTS}"
    found = sorted(rows.selectExpr("n", f"{same} AS same").collect())
    assert [
        pair for pair, row in zip(pairs, found, strict=True) if pair[2] != row.same
    ] == []
