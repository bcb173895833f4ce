"""Columns of the tables, and payloads that try to break them."""

import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import pyarrow.parquet as pq
import pytest

from gateway.sdk.payload import DEPTH
from gateway.spark.commit.ledger import Ranges
from gateway.spark.rows import stats, tables
from gateway.spark.rows.columns import Columns, Source, sql_type
from gateway.spark.source import SCHEMA_DDL
from gateway.store.names import Life

pytestmark = pytest.mark.spark

ARRIVED = datetime(2026, 3, 2, 0, 30, tzinfo=UTC)

#: Payloads that VARIANT can not hold without loss: the bytes must be kept.
UNPARSED = {
    "not JSON": b"{nope",
    "nothing": b"",
    "blank": b"  ",
    "bad UTF-8": b'{"a": "\xff\xfe"}',
    "byte order mark": b'\xef\xbb\xbf{"a": 1}',
    "key twice": b'{"a": 1, "a": 2}',
    "key twice, inside": b'{"x": [{"a": 1, "a": 1}]}',
    "second value": b'{"a": 1}\n{"b": 2}',
    "garbage behind": b'{"a": 1} x',
    "comma behind": b'{"a": 1}, {"b": 2}',
    "bracket trick": b"1, 2] [3",
    "closing trick": b'{"a": 1}]',
    "NaN": b'{"a": NaN}',
    "raw control": b'{"a": "\x01"}',
    "deep": b"[" * 5000 + b"]" * 5000,
    "deep objects": b'{"a":' * 3000 + b"1" + b"}" * 3000,
    "long number": b"[" + b"9" * 2000 + b"]",
    "long key": b'{"' + b"k" * 70_000 + b'": 1}',
    "long string": b'"' + b"x" * (21 * 2**20) + b'"',
}

#: Payloads that are no text: the only ones that the text of a body can not hold.
NO_TEXT = {"bad UTF-8"}

#: Payloads that must arrive as values.
PARSED = {
    "object": b'{"a": {"b": [1, 2.5, null, true, "\\u00e9\\u0000"]}}',
    "spaces": b' \n{"a" : 1}\t ',
    "array": b"[1, 2]",
    "string": b'"x"',
    "big integer": b'{"a": 18446744073709551616}',
    "long decimal": b'{"a": 0.1234567890123456789012345}',
    "empty key": b'{"": 1}',
    "as deep as may be": b'{"a":' + b"[" * (DEPTH - 1) + b"]" * (DEPTH - 1) + b"}",
    "many keys": json.dumps({f"k{n}": n for n in range(20_000)}).encode(),
}


@pytest.fixture
def make_rows(spark, tmp_path, make_envelope) -> Callable[..., list[Any]]:
    """Payloads to rows of `events` and `quarantine`, by way of Parquet."""

    def made(
        payloads: list[bytes],
        *columns: str,
        body: str = "json",
        chosen: dict[str, Any] | None = None,
        doubles: Literal["contents", "place"] | None = None,
        **options: Any,
    ) -> list[Any]:
        at = int(ARRIVED.timestamp() * 1e6)
        table = make_envelope("gw", 1, payloads, received_at=at, **options)
        pq.write_table(table, tmp_path / "in.parquet", row_group_size=4)
        stream = spark.read.schema(SCHEMA_DDL).parquet(f"file://{tmp_path}/in.parquet")
        # Written and read again: a value that Parquet refuses would show here.
        rows = tables.events(stream, body, Columns(chosen, doubles))
        rows.write.parquet(f"file://{tmp_path}/out")
        rows = spark.read.parquet(f"file://{tmp_path}/out").orderBy("lsn")
        return list(rows.selectExpr(*columns).collect())

    return made


def test_a_body_is_what_was_sent(make_rows):
    """Byte for byte, whatever a parser thinks of it: numbers of any size, keys twice.
    What is no text is in the payload; one of both, never both."""
    cases = {
        **UNPARSED,
        **PARSED,
        "beyond a double": b'{"a": 1e400}',
        "42 digits": b'{"a": 123456789012345678901234567890123456789012}',
    }
    rows = make_rows(list(cases.values()), "body", "payload", "payload_bytes")
    for (name, sent), row in zip(cases.items(), rows, strict=True):
        assert (row.body is None) == (name in NO_TEXT), name
        assert (row.payload is not None) == (name in NO_TEXT), name
        got = bytes(row.payload) if row.body is None else row.body.encode()
        assert got == sent, name
        assert row.payload_bytes == len(sent), name


@pytest.mark.lowest
def test_no_payload_is_lost(make_rows):
    """With VARIANT, too, every event gets a row: as a value, or as the bytes that were
    sent, never both."""
    cases = {**UNPARSED, **PARSED}
    rows = make_rows(
        list(cases.values()), "body IS NULL AS raw", "payload", body="variant"
    )
    for (name, sent), row in zip(cases.items(), rows, strict=True):
        assert row.raw == (name in UNPARSED), name
        assert (bytes(row.payload) if row.raw else row.payload) == (
            sent if row.raw else None
        ), name


def test_values_are_those_of_the_json(make_rows):
    """VARIANT says what the JSON said."""
    rows = make_rows(list(PARSED.values()), "to_json(body) AS text", body="variant")
    for (name, sent), row in zip(PARSED.items(), rows, strict=True):
        assert json.loads(row.text) == json.loads(sent), name


def test_the_usual_fields_have_columns(make_rows):
    """Time, message and host are found where shippers put them."""
    sent: list[tuple[Any, tuple[Any, Any, Any]]] = [
        (
            {
                "@timestamp": "2026-03-01T23:59:59.123456Z",
                "message": "hello",
                "host": {"name": "web-1", "ip": ["192.0.2.1"]},
            },
            (datetime(2026, 3, 1, 23, 59, 59, 123456), "hello", "web-1"),  # noqa: DTZ001
        ),
        (
            {"@timestamp": "2026-03-02T01:00:00+02:00", "message": 5, "host": "web-2"},
            (datetime(2026, 3, 1, 23), "5", "web-2"),  # noqa: DTZ001
        ),
        ({"host": {"ip": "192.0.2.1"}}, (None, None, None)),
        ({"line": "old", "host.name": "web-3"}, (None, "old", "web-3")),
        ({"@timestamp": "12:30", "message": None}, (None, None, None)),
        ({"@timestamp": {"a": 1}}, (None, None, None)),
        ({"@timestamp": "0000-00-00T99:00:00Z"}, (None, None, None)),
        ({"@timestamp": "2026-13-01T00:00:00Z"}, (None, None, None)),
        ([1], (None, None, None)),
        ({"event": {"original": "raw"}}, (None, "raw", None)),
        ({"msg": "short", "agent": {"hostname": "a"}}, (None, "short", "a")),
        ({"beat": {"hostname": "b6"}, "host": {}}, (None, None, "b6")),
    ]
    rows = make_rows(
        [json.dumps(one).encode() for one, _ in sent],
        *("event_time", "message", "host", "received_at"),
    )
    arrived = ARRIVED.replace(tzinfo=None)
    for (one, (at, message, host)), row in zip(sent, rows, strict=True):
        assert row.received_at == arrived
        assert row.event_time == (at or arrived), one
        assert (row.message, row.host) == (message, host), one


def test_fallbacks_pass_what_is_empty_over(make_rows):
    """The name of the machine is wherever somebody says it; an empty text counts where
    nobody says more, and a default where there is none at all."""
    sent = [
        ({"agent": {"name": "a"}}, "a", "info"),
        ({"host": {"name": ""}, "agent": {"name": "a"}, "level": ""}, "a", ""),
        ({"host": {"name": "h"}, "agent.name": "a", "severity": "bad"}, "h", "bad"),
        ({"host": {"name": ""}, "level": "", "severity": "bad"}, "", "bad"),
        ({"message": ""}, None, "info"),
    ]
    rows = make_rows(
        [json.dumps(one).encode() for one, *_ in sent],
        *("host", "level", "message"),
        chosen={"level": Source(("level", "severity"), default="info")},
    )
    assert [(row.host, row.level) for row in rows] == [row[1:] for row in sent]
    assert rows[-1].message == ""


def test_keys_with_dots_in_them_are_found_at_any_level(make_rows):
    """As Kubernetes' labels and ECS have them: nested, flat, and anything in between; a
    key in quotes is one key."""
    label = "app.kubernetes.io/name"
    sent: list[tuple[dict[str, Any], str | None, str | None]] = [
        ({"kubernetes": {"labels": {label: "shop"}}}, "shop", "shop"),
        ({"kubernetes.labels": {label: "shop"}}, "shop", "shop"),
        ({f"kubernetes.labels.{label}": "shop"}, "shop", "shop"),
        ({"kubernetes": {f"labels.{label}": "shop"}}, "shop", "shop"),
        (
            {"kubernetes": {"labels": {"app": {"kubernetes": {"io/name": "shop"}}}}},
            None,
            "shop",
        ),
        ({"kubernetes": {"labels.app": {"kubernetes.io/name": "shop"}}}, None, "shop"),
    ]
    rows = make_rows(
        [json.dumps(one).encode() for one, *_ in sent],
        *("quoted", "split"),
        chosen={
            "quoted": Source((f'kubernetes.labels."{label}"',)),
            "split": Source((f"kubernetes.labels.{label}",)),
        },
    )
    assert [(row.quoted, row.split) for row in rows] == [row[1:] for row in sent]


def test_other_content_is_kept_as_it_is(make_rows):
    """What does not say it is JSON is not read as JSON; text is a message."""
    rows = make_rows(
        [b"plain \xc3\xa9", b"\xff"],
        *("body IS NULL AS raw", "message", "payload"),
        content_type="text/plain",
    )
    assert [row.raw for row in rows] == [True, True]
    assert [row.message for row in rows] == ["plain é", None]
    assert [bytes(row.payload) for row in rows] == [b"plain \xc3\xa9", b"\xff"]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("int", [None, 7]),
        ("decimal(10,2)", [None, Decimal(7)]),
        ("list<string>", [["hello"], ["7"]]),
    ],
)
def test_a_text_is_a_message_where_it_fits(make_rows, kind, values):
    """The column `message` has the type that it was given; a text that does not fit is a
    misfit, as any other value is."""
    rows = make_rows(
        [b"hello", b"7"],
        *("message", "misfits", "typeof(message) AS type"),
        chosen={"message": Source(("code",), kind)},
        content_type="text/plain",
    )
    assert [row.message for row in rows] == values
    assert [row.misfits for row in rows] == [
        "message" if value is None else None for value in values
    ]
    assert {row.type for row in rows} == {sql_type(kind)}


def test_json_behind_a_registry_is_json(make_rows):
    """Whose content type says what stood before it (Pravega's `options.framing`)."""
    rows = make_rows(
        [b'{"message": "hi", "n": 2}'],
        *("message", "payload", "content_type", "n"),
        content_type="application/json;framing=pravega-registry;schema=7",
        chosen={"n": Source(("n",), "long")},
    )
    [row] = rows
    assert (row.message, row.n, row.payload) == ("hi", 2, None)
    assert row.content_type.endswith(";schema=7")


def test_flawed_events_keep_their_bytes(make_rows):
    """They go to quarantine, with the payload even where it could be read."""
    rows = make_rows(
        [b'{"a": 1}', b'{"b": 2}', b"{"],
        *("table", "flaw", "payload", "date", "protocol"),
        flaws={1: "oversized", 2: "invalid-json"},
    )
    assert [row.table for row in rows] == ["events", "quarantine", "quarantine"]
    assert [row.flaw for row in rows] == [None, "oversized", "invalid-json"]
    assert rows[0].payload is None
    assert [bytes(row.payload) for row in rows[1:]] == [b'{"b": 2}', b"{"]
    assert {row.date for row in rows} == {date(2026, 3, 2)}
    assert {row.protocol for row in rows} == {"lumberjack"}


def test_what_was_committed_before_is_left_out(spark):
    """By node, incarnation and interval, both ends included."""
    all_of = spark.createDataFrame(
        [
            (*life, lsn)
            for life in (("a", "x"), ("a", "y"), ("b", "x"))
            for lsn in range(1, 7)
        ],
        "node string, incarnation string, lsn bigint",
    )
    gone = Ranges({"a": {"x": [(1, 2), (5, 5)]}, "b": {"x": [(1, 6)]}})
    left = sorted(tuple(row) for row in tables.without(all_of, gone).collect())
    assert left[:3] == [("a", "x", 3), ("a", "x", 4), ("a", "x", 6)]
    assert left[3:] == [("a", "y", n) for n in range(1, 7)]


def test_what_is_deleted_may_be_scattered(spark):
    """As a person's events are among those of others, in a backlog or a file that is put
    back: to leave thousands out takes as long as one.
    """
    rows = spark.range(20_000).selectExpr(
        "'gw' AS node", "'a' AS incarnation", "id AS lsn", "'events' AS table",
        "CAST(NULL AS string) AS flaw",
    )  # fmt: skip
    third = Ranges()
    for lsn in range(0, 20_000, 3):
        third.add(Life("gw", "a"), lsn, lsn)
    assert tables.without(rows, third).count() == 20_000 - 6667
    again = tables.resent(rows, third).where("flaw = 'resent'")
    assert again.where("table = 'quarantine' AND lsn % 3 = 0").count() == 6667


#: An `@timestamp`, and when that was; None where it is no time.
STAMPS = json.loads((Path(__file__).parents[1] / "vectors" / "stamps.json").read_text())


def test_when_it_happened(make_rows):
    """Comma or point, seconds or less since 1970; never a year that Python can not hold.
    Where it came from is said."""
    rows = make_rows(
        [json.dumps({"@timestamp": stamp}).encode() for stamp, _ in STAMPS],
        *("event_time", "event_time_source"),
    )
    arrived = (ARRIVED.replace(tzinfo=None), "received_at")
    found = [(stamp, tuple(row)) for (stamp, _), row in zip(STAMPS, rows, strict=True)]
    assert found == [
        (stamp, (datetime.fromisoformat(time), "@timestamp") if time else arrived)
        for stamp, time in STAMPS
    ]


@pytest.mark.lowest
def test_columns_of_ones_own(make_rows):
    """Paths nested or flat, fallbacks, types, defaults, other names; what does not fit
    is null, named, and stops nothing."""
    chosen = {
        "status": Source(("http.response.status_code", "status"), "int", default=0),
        "took": Source(("took",), "double"),
        "fine": Source(("fine",), "boolean"),
        "ended": Source(("end",), "timestamp"),
        "labels": Source(("labels",), "json"),
        "hostname": Source(("host.name",)),
        "message": Source(("msg", "message")),
        "host": None,
    }
    sent: list[tuple[Any, tuple[Any, ...]]] = [
        (
            {
                "http": {"response": {"status_code": 404}},
                "took": 1.5,
                "fine": True,
                "end": "2026-03-01T12:00:00Z",
                "labels": {"a": [1, 2]},
                "host": {"name": "h"},
                "message": "second",
                "msg": "first",
            },
            *[(404, 1.5, True, datetime(2026, 3, 1, 12), '{"a":[1,2]}')],  # noqa: DTZ001
        ),
        ({"http.response.status_code": "500"}, (500, None, None, None, None)),
        ({"status": 200, "fine": "false"}, (200, None, False, None, None)),
        ({"labels": "x"}, (0, None, None, None, "x")),
        (
            {"status": "many", "took": "long", "fine": 5, "end": 7},
            (None, None, None, None, None),
        ),
        ({"status": 2**40, "took": [1]}, (None, None, None, None, None)),
        ({"status": 1, "took": "-.5e2"}, (1, -50.0, None, None, None)),
        ({"status": 1, "took": "-Inf"}, (1, float("-inf"), None, None, None)),
        ({"status": 1, "took": "1d"}, (1, None, None, None, None)),
        ({"status": 1, "took": "1.f\t"}, (1, None, None, None, None)),
        ({"status": 1, "took": "0x1p3"}, (1, None, None, None, None)),
    ]
    rows = make_rows(
        [json.dumps(one).encode() for one, _ in sent],
        *("status", "took", "fine", "ended", "labels", "hostname", "message"),
        *("misfits", "struct(*) AS all"),
        chosen=chosen,
    )
    for (one, expected), row in zip(sent, rows, strict=True):
        assert tuple(row)[:5] == expected, one
    assert (rows[0].hostname, rows[0].message) == ("h", "first")
    assert [row.misfits for row in rows] == [
        *[None] * 4,
        "status,took,fine,ended",
        "status,took",
        *[None] * 2,
        *["took"] * 3,
    ]
    assert "host" not in rows[0]["all"].asDict()


def test_a_default_is_what_the_file_says(make_rows):
    """Nothing in it is a variable of Spark's, an escape or an end of a text."""
    defaults: dict[str, tuple[str, Any]] = {
        "text": ("string", "${env:HOME} ${spark.app.name} it's \\n"),
        "number": ("string", 7),
        "yes": ("boolean", True),
        "price": ("decimal(4,2)", -99.99),
        "large": ("double", 1e300),
        "least": ("long", -(2**63)),
    }
    (row,) = make_rows(
        [b"{}"],
        *defaults,
        chosen={
            name: Source(("none",), kind, default=value)
            for name, (kind, value) in defaults.items()
        },
    )
    assert tuple(row) == (
        *(defaults["text"][1], "7", True),
        *(Decimal("-99.99"), 1e300, -(2**63)),
    )


@pytest.mark.lowest
def test_days_decimals_and_lists(make_rows):
    """Out of texts and numbers: the day of an instant in UTC, decimals that are rounded, the
    elements of a list or a single value; what does not fit is null and named."""
    chosen = {
        "day": Source(("day",), "date"),
        "price": Source(("price",), "decimal(10,2)", default=0),
        "tags": Source(("tags",), "list<string>"),
        "sizes": Source(("sizes",), "list<long>"),
    }
    sent: list[tuple[dict[str, Any], tuple[Any, ...], str | None]] = [
        (
            {
                "day": "2026-03-01",
                "price": "12.30",
                "tags": ["a", "b c", None, 1, [2], "[\\ud83d\\ude00"],
                "sizes": [1, "2", None],
            },
            (
                date(2026, 3, 1),
                Decimal("12.30"),
                ["a", "b c", None, "1", "[2]", "[\\ud83d\\ude00"],
                [1, 2, None],
            ),
            None,
        ),
        (
            {
                "day": "2026-03-01T00:30:00+02:00",
                "price": 0.30000000000000004,
                "tags": "one",
                "sizes": 7,
            },
            (date(2026, 2, 28), Decimal("0.30"), ["one"], [7]),
            None,
        ),
        (
            {"day": "1969-12-30T23:59:59.999999Z", "tags": [], "sizes": []},
            (date(1969, 12, 30), Decimal(0), [], []),
            None,
        ),
        ({"day": 1_772_366_400}, (date(2026, 3, 1), Decimal(0), None, None), None),
        (
            {"day": "12026-03-01T00:00:00Z", "price": "-1e3"},
            (date(9999, 12, 30), Decimal(-1000), None, None),
            None,
        ),
        (
            {"day": 2026, "price": "1e-999999999", "tags": {"a": 1}, "sizes": [1, "x"]},
            (None, None, None, None),
            "day,price,tags,sizes",
        ),
        (
            {"day": "March", "price": 1e9, "sizes": [2**63]},
            (None, None, None, None),
            "day,price,sizes",
        ),
        ({"price": "NaN", "sizes": "x"}, (None, None, None, None), "price,sizes"),
    ]
    rows = make_rows(
        [json.dumps(one).encode() for one, _, _ in sent],
        *("day", "price", "tags", "sizes", "misfits"),
        chosen=chosen,
    )
    for (one, values, misfits), row in zip(sent, rows, strict=True):
        assert tuple(row) == (*values, misfits), one


LONG, LARGE = "9" * 2000, f'{{"{"k" * 60_000}":1}}'

#: What is sent, and its elements as texts and as numbers; None: it does not fit.
LISTS: list[tuple[str, list[str | None] | None, list[float] | None]] = [
    ('"[warn] disk"', ["[warn] disk"], None),
    ('"[1,2]"', ["[1,2]"], None),
    ('"{}"', ["{}"], None),
    ('""', [""], None),
    ("[]", [], []),
    ("{}", None, None),
    ("[1.10, 1e2]", ["1.10", "1e2"], [1.1, 100.0]),
    ("[1e400]", ["1e400"], [float("inf")]),
    ('["1d"]', ["1d"], None),
    ('["0x1p3"]', ["0x1p3"], None),
    ('["a\\u00e9\\n", null, [1, "]"]]', ["aé\n", None, '[1,"]"]'], None),
    (f"[{LONG}, {LARGE}]", [LONG, LARGE], None),
]


def test_elements_of_lists_are_as_others_of_their_type(make_rows):
    """A text is one element, whatever it begins with; a number keeps its spelling in a list
    of texts; what a column of type double refuses, a list of such refuses, too."""
    rows = make_rows(
        [f'{{"t": {sent}}}'.encode() for sent, _, _ in LISTS],
        *("texts", "numbers"),
        chosen={
            "texts": Source(("t",), "list<string>"),
            "numbers": Source(("t",), "list<double>"),
        },
    )
    found = [(sent, *row) for (sent, _, _), row in zip(LISTS, rows, strict=True)]
    assert found == LISTS


def test_an_instant_is_that_of_the_path_which_has_a_value(make_rows):
    """Of several the first with a value counts, whatever the others say, and whether it
    is written as most write instants or not."""
    noon = datetime(2026, 3, 1, 12)  # noqa: DTZ001
    sent = [
        ({"end": "2026-03-01T12:00:00Z", "stop": "2027-03-01T12:00:00Z"}, noon, None),
        ({"stop": "2026-03-01 13:00:00,000+01:00"}, noon, None),
        ({"end": None, "stop": 1_772_366_400}, noon, None),
        ({"end": "2026-3-1T12:00:00", "stop": "2027-03-01T12:00:00Z"}, noon, None),
        ({"end": "never", "stop": "2026-03-01T12:00:00Z"}, None, "ended"),
        (
            {"end": "2026-02-29T12:00:00Z", "stop": "2026-03-01T12:00:00Z"},
            None,
            "ended",
        ),
        ({}, None, None),
    ]
    rows = make_rows(
        [json.dumps(one).encode() for one, *_ in sent],
        *("ended", "misfits"),
        chosen={"ended": Source(("end", "stop"), "timestamp")},
    )
    for (one, at, misfit), row in zip(sent, rows, strict=True):
        assert (row.ended, row.misfits) == (at, misfit), one


def test_columns_of_some_listeners(spark, make_envelope, tmp_path):
    """A column may look elsewhere in another protocol, and stay as it is in the rest."""
    chosen = {
        "message": [Source(("text",), protocol="pomelo"), Source(("m",), listener="x")],
        "score": Source(("points",), "long", listener="game"),
        "event_time": [Source(("at",), protocol="pomelo")],
    }
    payload = (
        b'{"text": "t", "m": "m", "message": "usual", "points": 3, "at": 1772366400,'
        b' "@timestamp": "2026-03-02T12:00:00Z"}'
    )
    for number, (protocol, listener) in enumerate(
        [("pomelo", "game"), ("rsio", "x"), ("lumberjack", "beats")]
    ):
        table = make_envelope(
            "gw", number + 1, [payload], protocol=protocol, listener=listener
        )
        pq.write_table(table, tmp_path / f"{number}.parquet")
    stream = spark.read.schema(SCHEMA_DDL).parquet(f"file://{tmp_path}")
    rows = tables.events(stream, "json", Columns(chosen)).orderBy("lsn").collect()
    assert [(row.message, row.score) for row in rows] == [
        ("t", 3),
        ("m", None),
        ("usual", None),
    ]
    assert [(row.event_time.day, row.event_time_source) for row in rows] == [
        (1, "at"),
        (2, "@timestamp"),
        (2, "@timestamp"),
    ]


def test_names_that_are_no_identifiers(make_rows):
    """Keys with quotes, dots, blanks and in two cases; paths that lead through another."""
    chosen = {
        "a": Source(("it's `odd`.\\x",)),
        "b": Source(("Key",)),
        "c": Source(("key",)),
        "d": Source(("deep",)),
        "e": Source(("deep.er",)),
        "f": Source(("deep.er.est",)),
    }
    rows = make_rows(
        [
            json.dumps({"it's `odd`": {"\\x": "1"}, "Key": "2", "key": "3"}).encode(),
            b'{"deep": "4"}',
            b'{"deep": {"er": "5"}}',
            b'{"deep": {"er": {"est": "6"}}}',
        ],
        *("a", "b", "c", "d", "e", "f"),
        chosen=chosen,
    )
    assert tuple(rows[0])[:3] == ("1", "2", "3")
    assert [tuple(row)[3:] for row in rows[1:]] == [
        ("4", None, None),
        (None, "5", None),
        (None, None, "6"),
    ]


#: Names that steps on the way have, and such as mean something in SQL.
ODD_NAMES = (
    *("text", "j", "pair", "variant", "raw_message", "typed_message", "raw_text"),
    *("null", "true", "false", "user", "order", "case", "end", "current_date"),
)


@pytest.mark.parametrize("body", ["json", "variant", "both"])
def test_names_that_mean_something_else(make_rows, body):
    """A column is called what its user likes: the body stays what was sent, nothing is
    lost, and each column has the value of its own path."""
    values: dict[str, Any] = {name: f"of {name}" for name in ODD_NAMES}
    values |= {"message": "m", "count": "none", "@timestamp": "2026-03-01T12:00:00Z"}
    sent = json.dumps(values).encode()
    chosen = {name: Source((name,)) for name in ODD_NAMES}
    chosen["count"] = Source(("count",), "int")
    good, flawed, no_json = make_rows(
        [sent, sent, b"\xff"],
        "struct(*) AS all",
        body=body,
        chosen=chosen,
        flaws={1: "odd"},
    )
    row = good["all"].asDict()
    assert {name: row[name] for name in ODD_NAMES} == {
        name: f"of {name}" for name in ODD_NAMES
    }
    assert (row["message"], row["count"], row["misfits"]) == ("m", None, "count")
    assert row["event_time_source"] == "@timestamp"
    text = str(row["body"]).encode()
    assert text == sent if body != "variant" else json.loads(text) == values
    assert row["payload"] is None
    for other, payload in ((flawed, sent), (no_json, b"\xff")):
        assert bytes(other["all"]["payload"]) == payload
        assert other["all"]["body"] is None or body == "variant"


def test_doubles_are_told_beside_columns_of_any_name(make_rows):
    """What `spark.deduplicate` hashes takes no column's place, and no column takes its."""
    names = ("place_agent", "place_file", "place_offset", "place_text")
    sent = {
        "agent": {"id": "x"},
        "log": {"offset": 3, "file": {"path": "/a.log"}},
        "message": "m",
        **{name: f"of {name}" for name in names},
    }
    (row,) = make_rows(
        [json.dumps(sent).encode()],
        *(*names, "place IS NOT NULL AS placed"),
        chosen={name: Source((name,)) for name in names},
        doubles="place",
    )
    assert tuple(row) == (*(f"of {name}" for name in names), True)


#: Where an event came from, and what the columns of its protocol say of that.
ADDRESSES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (
        {"protocol": "pravega", "channel": "shop/orders/3.#epoch.0"},
        {"scope": "shop", "stream": "orders", "segment": 3, "event_offset": 1},
    ),
    ({"protocol": "pravega", "channel": "shop/_RGgroup/0.#epoch.0"}, {}),
    ({"protocol": "pravega", "channel": "shop/_MARKorders/0.#epoch.0"}, {}),
    ({"protocol": "pravega", "channel": "_system/x/0"}, {}),
    ({"protocol": "pomelo", "channel": "area.move"}, {"route": "area.move"}),
    (
        {"protocol": "rsio", "channel": "orders"},
        {"publisher": "orders", "stream": "s-1/orders"},
    ),
    ({"protocol": "rsio", "channel": None}, {}),
    ({"protocol": "lumberjack"}, {}),
]


def test_the_protocols_own_address(spark, tmp_path, make_envelope):
    """In columns with the protocol's own words; streams that clients make for themselves
    have none."""
    for lsn, (options, _) in enumerate(ADDRESSES, 1):
        table = make_envelope("gw", lsn, [b"{}"], **options)
        pq.write_table(table, tmp_path / f"{lsn}.parquet")
    stream = spark.read.schema(SCHEMA_DDL).parquet(f"file://{tmp_path}")
    names = ("scope", "stream", "segment", "event_offset", "route", "publisher")
    rows = tables.events(stream).orderBy("lsn").select(*names).collect()
    assert [row.asDict() for row in rows] == [
        {name: expected.get(name) for name in names} for _, expected in ADDRESSES
    ]


def test_counts_per_window(spark, tmp_path, make_envelope):
    """Events, bytes and flaws per window, protocol, listener and channel."""
    start = datetime(2026, 3, 1, 23, 59, tzinfo=UTC)
    for number, (seconds, channel) in enumerate(
        [(0, None), (30, "c"), (59, None), (60, None)]
    ):
        at = int((start + timedelta(seconds=seconds)).timestamp() * 1e6)
        table = make_envelope(
            *("gw", 1, [b"12", b"3"]),
            received_at=at,
            channel=channel,
            flaws={1: "invalid-json"},
        )
        pq.write_table(table, tmp_path / f"{number}.parquet")
    stream = spark.read.schema(SCHEMA_DDL).parquet(f"file://{tmp_path}")
    tables.events(stream).coalesce(1).write.parquet(f"file://{tmp_path}/out")
    files = [("protocol=rsio", one) for one in (tmp_path / "out").glob("*.parquet")]
    counted = stats.count(files, timedelta(minutes=1))
    assert sorted(counted.tables) == [
        "protocol=rsio/date=2026-03-01",
        "protocol=rsio/date=2026-03-02",
    ]
    rows = [row for table in counted.tables.values() for row in table.to_pylist()]
    found = sorted(
        (
            *(row["window_start"].minute, row["channel"] or "", row["listener"]),
            *(row["events"], row["payload_bytes"], row["flawed"]),
        )
        for row in rows
    )
    assert found == [
        (0, "", "beats", 2, 3, 1),
        (59, "", "beats", 4, 6, 2),
        (59, "c", "beats", 2, 3, 1),
    ]
