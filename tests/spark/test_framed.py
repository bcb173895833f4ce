"""Columns of Avro and Protobuf events that stood behind a schema registry's header."""

import base64
import contextlib
import datetime as dt
import decimal
import json
import struct
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace

import pytest

from gateway.config.columns import Column
from gateway.spark.commit.ledger import Broken
from gateway.spark.later.backfill import overwrite_days
from gateway.spark.rows.framed import Schemas, function, schemas_in

pytestmark = pytest.mark.spark

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "order", "type": {"type": "record", "name": "Of", "fields": [
            {"name": "n", "type": "long"},
            {"name": "item", "type": "string"},
        ]}},
        {"name": "total", "type": {
            "type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2,
        }},
        {"name": "paid", "type": ["null", "boolean"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "kind", "type": {
            "type": "enum", "name": "Kind", "symbols": ["web", "shop"],
        }},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "more", "type": {"type": "map", "values": "double"}},
        {"name": "raw", "type": {"type": "fixed", "name": "Raw", "size": 2}},
        {"name": "odd", "type": "float"},
    ],
}  # fmt: skip
OTHER = {"type": "record", "name": "O", "fields": [{"name": "item", "type": "int"}]}
TYPES = {
    "n": "long", "item": "string", "total": "decimal(10,2)", "paid": "boolean",
    "at": "timestamp", "day": "date", "shape": "string", "tags": "list<string>",
    "more": "json", "raw": "string", "odd": "string",
}  # fmt: skip
PATHS = {"shape": "kind", "n": "order.n", "item": "order.item"}


def long(n: int) -> bytes:
    """A number as Avro has it."""
    return unsigned((n << 1) ^ (n >> 63))


def unsigned(left: int) -> bytes:
    made = bytearray()
    while left > 0x7F:
        made.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*made, left])


def text(of: bytes) -> bytes:
    return long(len(of)) + of


ORDERED = b"".join((
    long(-17), text('"é\n'.encode()),
    text((1230).to_bytes(2)),
    long(1), b"\1",
    long(1_772_366_400_250), long(20_513), long(1),
    long(-2), long(9), text(b"a"), text(b"b"), long(0),
    long(1), text(b"x"), struct.pack("<d", 0.5), long(0),
    b"\0\1", struct.pack("<f", float("nan")),
))  # fmt: skip


@pytest.fixture
def schemas(tmp_path):
    """A folder of schemas: 7 of all streams, and of one stream another 7."""
    folder = tmp_path / "schemas"
    (folder / "shop/other").mkdir(parents=True)
    (folder / "7.avsc").write_text(json.dumps(ORDER))
    (folder / "shop/other/7.avsc").write_text(json.dumps(OTHER))
    return folder


def test_columns_of_avro(schemas, spool, config, run_once, table_rows):
    """Each value in its type; what is no value of its schema is told, bytes stay as sent."""
    config.spark.schemas = schemas
    config.spark.columns = {
        name: SimpleNamespace(
            path=PATHS.get(name, name),
            type=kind,
            default=None,
            protocol=None,
            listener=None,
        )
        for name, kind in TYPES.items()
    }
    sent = [ORDERED, ORDERED + b"x", long(9) + text(b"y") + b"\xfe" * 9, b""]
    how = {"protocol": "pravega", "channel": "shop/orders/0.#epoch.0"}
    spool.put("gw", 1, sent, content_type=avro(7), **how)
    spool.put("gw", 11, [ORDERED], content_type=avro(8), **how)
    how["channel"] = "shop/other/0.#epoch.0"
    spool.put("gw", 21, [long(12)], content_type=avro(7), **how)
    json_too = "application/json;framing=confluent;schema=7"
    spool.put("gw", 31, [b'{"order": {"n": 5}}'], content_type=json_too, **how)
    run_once()
    rows = {row["lsn"]: row for row in table_rows(config.data_dir / "lake/events")}
    one = rows[1]
    assert {name: one[name] for name in TYPES} == {
        "n": -17,
        "item": '"é\n',
        "total": decimal.Decimal("12.30"),
        "paid": True,
        "at": dt.datetime(2026, 3, 1, 12, 0, 0, 250_000, tzinfo=dt.UTC),
        "day": dt.date(2026, 3, 1),
        "shape": "shop",
        "tags": ["a", "b"],
        "more": '{"x":0.5}',
        "raw": "AAE=",
        "odd": "NaN",
    }
    assert (one["payload"], one["body"], one["misfits"]) == (ORDERED, None, None)
    assert [rows[lsn]["misfits"] for lsn in (2, 3, 4, 11)] == ["body"] * 4
    assert [rows[lsn]["n"] for lsn in (2, 3, 4, 11)] == [None] * 4
    assert (rows[2]["payload"], rows[21]["n"]) == (ORDERED + b"x", None)
    assert (rows[31]["n"], rows[31]["body"]) == (5, '{"order": {"n": 5}}')


def avro(schema: int) -> str:
    return f"application/avro;framing=confluent;schema={schema}"


ITEM = {"item": Column(path="order.item")}
SHOP = {"protocol": "pravega", "channel": "shop/orders/0.#epoch.0"}
TAKEN = []


def take(batch, context):
    """A function of a user's own."""
    TAKEN.extend(batch.select("item", "misfits").collect())


def test_a_function_gets_columns_of_avro(schemas, spool, config, run_once):
    """As each kind of tables does."""
    config.spark.schemas, config.spark.columns = schemas, ITEM
    config.spark.sink = f"{__name__}:take"
    spool.put("gw", 1, [ORDERED, b"junk"], content_type=avro(7), **SHOP)
    run_once()
    assert TAKEN == [('"é\n', None), (None, "body")]


def test_rows_of_before_get_columns_of_avro(schemas, spool, config, run_once, spark):
    """In tables of Delta and Iceberg, which `gateway spark backfill` overwrites by days."""
    spool.put("gw", 1, [ORDERED, b"junk"], content_type=avro(7), **SHOP)
    run_once()
    rows = spark.read.parquet(f"file://{config.data_dir}/lake/events")
    config.spark.schemas, config.spark.columns = schemas, ITEM
    made = []
    table = SimpleNamespace(
        name="events",
        rows=lambda: rows,
        overwrite=lambda day, make: made.extend(make(rows).select("item").collect()),
    )
    assert len(list(overwrite_days(spark, config, "events", table, ["item"]))) == 1
    assert made == [('"é\n',), (None,)]


def test_a_schema_that_is_none(schemas):
    """Its file is named before anything is read."""
    assert [*schemas_in(schemas)] == ["7", "shop/other/7"]
    (schemas / "8.avsc").write_text("{")
    with pytest.raises(Broken, match=r"spark\.schemas: .*/8\.avsc: "):
        schemas_in(schemas)


PROTO = """
name: "order.proto" package: "shop" syntax: "proto3"
message_type {
  name: "Order"
  field { name: "item_name" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
  field { name: "n" number: 2 label: LABEL_OPTIONAL type: TYPE_SINT64 }
  field { name: "price" number: 3 label: LABEL_OPTIONAL type: TYPE_DOUBLE }
  field { name: "kind" number: 4 label: LABEL_OPTIONAL type: TYPE_ENUM type_name: ".shop.Kind" }
  field { name: "sizes" number: 5 label: LABEL_REPEATED type: TYPE_UINT32 }
  field { name: "parts" number: 6 label: LABEL_REPEATED type: TYPE_MESSAGE
          type_name: ".shop.Order.Part" }
  field { name: "more" number: 7 label: LABEL_REPEATED type: TYPE_MESSAGE
          type_name: ".shop.Order.MoreEntry" }
  field { name: "at" number: 8 label: LABEL_OPTIONAL type: TYPE_MESSAGE
          type_name: ".google.protobuf.Timestamp" }
  field { name: "paid" number: 9 label: LABEL_OPTIONAL type: TYPE_BOOL }
  field { name: "raw" number: 10 label: LABEL_OPTIONAL type: TYPE_BYTES }
  field { name: "big" number: 11 label: LABEL_OPTIONAL type: TYPE_FIXED64 }
  field { name: "note" number: 12 label: LABEL_OPTIONAL type: TYPE_STRING
          oneof_index: 0 proto3_optional: true }
  oneof_decl { name: "_note" }
  nested_type { name: "Part"
    field { name: "id" number: 1 label: LABEL_OPTIONAL type: TYPE_INT32 } }
  nested_type { name: "MoreEntry" options { map_entry: true }
    field { name: "key" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
    field { name: "value" number: 2 label: LABEL_OPTIONAL type: TYPE_FLOAT } }
}
enum_type { name: "Kind"
  value { name: "WEB" number: 0 } value { name: "SHOP" number: 1 } }
"""


def test_columns_of_protobuf(tmp_path, spool, config, run_once, table_rows):
    """Fields have the names of the .proto, and their defaults where they were not sent."""
    pytest.importorskip("google.protobuf")
    from google.protobuf import (
        descriptor_pb2,
        descriptor_pool,
        message_factory,
        text_format,
        timestamp_pb2,
    )

    file = text_format.Parse(PROTO, descriptor_pb2.FileDescriptorProto())
    file.dependency.append("google/protobuf/timestamp.proto")
    pool, described = (
        descriptor_pool.DescriptorPool(),
        descriptor_pb2.FileDescriptorSet(),
    )
    timestamp_pb2.DESCRIPTOR.CopyToProto(described.file.add())
    described.file.append(file)
    for one in described.file:
        pool.Add(one)
    order = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    full = order(
        item_name="é", n=-5, price=float("inf"), kind=1, sizes=[1, 300], paid=True,
        parts=[{"id": 7}, {}], more={"a": 0.5}, raw=b"\0\1", big=2**64 - 1, note="",
        at=dt.datetime(2026, 3, 1, 12, 0, 0, 250_000, tzinfo=dt.UTC),
    )  # fmt: skip
    folder = tmp_path / "schemas"
    folder.mkdir()
    (folder / "7.shop.Order.desc").write_bytes(described.SerializeToString())
    (folder / "8.shop.Other.desc").write_bytes(described.SerializeToString())
    config.spark.schemas = folder
    types = {
        "item_name": "string", "n": "long", "price": "string", "kind": "string",
        "sizes": "list<int>", "parts": "json", "more": "json", "at": "timestamp",
        "paid": "boolean", "raw": "string", "big": "decimal(38,0)", "note": "string",
    }  # fmt: skip
    config.spark.columns = {
        ("shape" if name == "kind" else name): SimpleNamespace(
            path=name, type=kind, default=None, protocol=None, listener=None
        )
        for name, kind in types.items()
    }
    of = "application/x-protobuf;framing=pravega-registry;schema="
    how = {"protocol": "pravega", "channel": "shop/orders/0.#epoch.0"}
    sent = [full.SerializeToString(), b"", b"\x0a\x09short", b"\xff" * 20]
    spool.put("gw", 1, sent, content_type=of + "7", **how)
    spool.put("gw", 11, [b""], content_type=of + "8", **how)
    run_once()
    rows = {row["lsn"]: row for row in table_rows(config.data_dir / "lake/events")}
    names = [*config.spark.columns]
    assert {name: rows[1][name] for name in names} == {
        "item_name": "é", "n": -5, "price": "Infinity", "shape": "SHOP",
        "sizes": [1, 300], "parts": '[{"id":7},{"id":0}]', "more": '{"a":0.5}',
        "at": dt.datetime(2026, 3, 1, 12, 0, 0, 250_000, tzinfo=dt.UTC),
        "paid": True, "raw": "AAE=", "big": decimal.Decimal(2**64 - 1), "note": "",
    }  # fmt: skip
    assert {name: rows[2][name] for name in names if rows[2][name] is not None} == {
        "item_name": "", "n": 0, "price": "0", "shape": "WEB", "paid": False,
        "raw": "", "big": 0,
    }  # fmt: skip
    misfits = [rows[lsn]["misfits"] for lsn in (1, 2, 3, 4, 11)]
    assert misfits == [None, None, "body", "body", "body"]


#: Answers that are no schema; one of each kind must not keep others from theirs.
ODD = {
    11: 500, 12: 422, 13: b"<html>", 14: b'"' + b"x" * (2 << 20), 15: [],
    16: {"schema": "no schema"}, 17: {"schema": ""}, 18: {"schema": "{}"},
}  # fmt: skip
#: Ids that are answered late.
SLOW = 900
#: As some write them: with blanks, and a comment.
UNION = '[ "null", /* or */ "long" ]'


@pytest.fixture
def registry():
    """A registry's REST, Pravega's and Confluent's, and what it was asked."""
    asked, users = [], []
    of_pravega = {
        "schemaInfo": {
            "serializationFormat": {"serializationFormat": "Avro"},
            "schemaData": base64.b64encode(json.dumps(OTHER).encode()).decode(),
        },
        "codecType": {"name": ""},
    }
    field = b"\x0a\4item\x18\1\x20\1\x28\5"
    message = b"\x0a\1M\x12" + bytes([len(field)]) + field
    described = b"\x22" + bytes([len(message)]) + message
    described = b"\x0a" + bytes([len(described)]) + described
    of_protobuf = {
        "schemaInfo": {
            "type": "M",
            "serializationFormat": {"serializationFormat": "Protobuf"},
            "schemaData": base64.b64encode(described).decode(),
        }
    }
    answers = {
        "/v1/groups/shop%2Fproto/encodings/0": of_protobuf,
        "/v1/groups/shop%2Forders/encodings/0": of_pravega,
        "/v1/groups/..%2F../encodings/20": of_pravega,
        "/schemas/ids/19": {"schema": UNION},
        "/schemas/ids/9": {"schema": json.dumps(OTHER)},
        "/schemas/ids/10": {"schema": "syntax …", "schemaType": "PROTOBUF"},
        **{f"/schemas/ids/{n}": each for n, each in ODD.items()},
    }

    class Rest(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            users.append(self.headers["Authorization"])
            found = answers.get(self.path, 404)
            if self.path.startswith(f"/schemas/ids/{SLOW // 10}"):
                time.sleep(2.6)
            self.send_response(found if isinstance(found, int) else 200)
            self.end_headers()
            said = found if isinstance(found, bytes) else json.dumps(found).encode()
            with contextlib.suppress(OSError):  # of a huge one it reads a part
                self.wfile.write(said)

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Rest) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        yield SimpleNamespace(url=url, asked=asked, users=users)
        server.shutdown()


def test_schemas_of_a_registry(registry, tmp_path, spool, config, run_once, table_rows):
    """They are asked for once, and kept in the folder; what there is none of is told."""
    config.spark.schemas = folder = tmp_path / "fetched"
    config.spark.schema_registry = registry.url
    wanted = {"path": "item", "type": "int", "default": None}
    wanted |= {"protocol": None, "listener": None}
    config.spark.columns = {"item": SimpleNamespace(**wanted)}
    how = {"protocol": "pravega", "channel": "shop/orders/0.#epoch.0"}
    ours = "application/avro;framing=pravega-registry;schema=0"
    spool.put("gw", 1, [long(12), long(13)], content_type=ours, **how)
    spool.put("gw", 11, [long(14)], content_type=avro(9), **how)
    spool.put("gw", 21, [long(15)] * 3, content_type=avro(10), **how)
    proto = {**how, "channel": "shop/proto/0.#epoch.0"}
    spool.put("gw", 41, [b"\x08\x0c"], content_type=ours, **proto)
    run_once()
    spool.put("gw", 31, [long(16)], content_type=ours, **how)
    spool.put("gw", 51, [b"\x08\x0d"], content_type=ours, **proto)
    run_once()
    rows = {row["lsn"]: row for row in table_rows(config.data_dir / "lake/events")}
    found = {lsn: row["item"] for lsn, row in rows.items()}
    odd = dict.fromkeys((21, 22, 23))
    assert found == {1: 12, 2: 13, 11: 14, 31: 16, 41: 12, 51: 13, **odd}
    assert {lsn for lsn, row in rows.items() if row["misfits"]} == {21, 22, 23}
    assert sorted(registry.asked) == [
        "/schemas/ids/10", "/schemas/ids/9", "/v1/groups/shop%2Forders/encodings/0",
        "/v1/groups/shop%2Fproto/encodings/0",
    ]  # fmt: skip
    assert schemas_in(folder).keys() == {"9", "shop/orders/0", "shop/proto/0"}


def test_answers_that_are_no_schema(registry, tmp_path, spark):
    """Others are asked for all the same, and the folder has nothing that stops the next start."""
    folder = tmp_path / "fetched"
    above = {
        "channel": "../../0",
        "type": avro(20).replace("confluent", "pravega-registry"),
    }
    sent = [{"channel": "", "type": avro(n)} for n in (*ODD, 19, 9)] + [above]
    url = registry.url.replace("//", "//user:p%40ss+@")
    found = decoded(spark, Schemas({}, str(folder), url), sent, long(1) + long(12))
    assert found == [None] * len(ODD) + ["12", None, None]
    found = decoded(spark, Schemas({}, str(folder), url), sent[-2:], long(12))
    assert found == ['{"item":12}', '{"item":12}']
    assert schemas_in(folder).keys() == {"9", "19"}
    assert not [*tmp_path.glob("*.avsc")]
    assert len(registry.asked) == len(ODD) + 3
    basic = base64.b64encode(b"user:p@ss+").decode()
    assert set(registry.users) == {f"Basic {basic}"}


def test_a_registry_that_is_away_or_slow(registry, tmp_path, spark):
    """It is left alone for a while: tasks wait for it some seconds, however many ids there are."""
    some = [{"channel": "", "type": avro(n)} for n in (SLOW, SLOW + 1, SLOW + 2, 9)]
    nobody = Schemas({}, str(tmp_path), "http://127.0.0.1:1")
    assert decoded(spark, nobody, some, long(12)) == [None] * 4
    slow = Schemas({}, str(tmp_path), registry.url)
    assert decoded(spark, slow, some, long(12)) == [None] * 4
    assert registry.asked == [f"/schemas/ids/{n}" for n in (SLOW, SLOW + 1)]


def decoded(spark, schemas, sent, payload):
    """What the function makes of one payload, one after the other."""
    name = function(spark, schemas)
    rows = [(n, one["type"], one["channel"], payload) for n, one in enumerate(sent)]
    made = spark.createDataFrame(
        rows, "n int, type string, channel string, payload binary"
    )
    json_of = f"cast({name}(payload, type, channel) AS string) AS json"
    return [row.json for row in made.coalesce(1).selectExpr("n", json_of).collect()]


def test_json_that_would_be_huge(spark):
    """Names of fields take no bytes of a payload; what they make of it is bounded."""
    names = [f"{n:0200}" for n in range(20)]
    fields = [{"name": f"n{name}", "type": "null"} for name in names]
    fields.append({"name": "b", "type": "boolean"})
    many = {"type": "array", "items": {"type": "record", "name": "R", "fields": fields}}
    doubled = {"type": "record", "name": "D0", "fields": []}
    for n in range(1, 40):
        twice = [{"name": "a", "type": doubled}, {"name": "b", "type": f"D{n - 1}"}]
        doubled = {"type": "record", "name": f"D{n}", "fields": twice}
    endless = {"type": "record", "name": "E", "fields": [{"name": "e", "type": "E"}]}
    message = field(1, 11, ".M", repeated=True) + b"".join(
        field(n + 2, 5, name="n" + name) for n, name in enumerate(names)
    )
    described = b"\x22" + part(b"\x0a\1M" + message) + b"\x62\6proto3"
    proto = "M " + base64.b64encode(b"\x0a" + part(described)).decode()
    schemas = {"1": many, "2": doubled, "3": endless}
    texts = {name: json.dumps(one) for name, one in schemas.items()} | {"4": proto}
    elements = 1 << 15
    for id_, payload, few in (
        (1, long(elements) + b"\1" * elements + long(0), long(1) + b"\1" + long(0)),
        (2, b"", None),
        (3, b"", None),
        (4, b"\x0a\0" * elements, b"\x0a\0"),
    ):
        sent = [{"channel": "", "type": avro(id_)}]
        assert decoded(spark, Schemas(texts), sent, payload) == [None]
        if few:
            (found,) = decoded(spark, Schemas(texts), sent, few)
            assert names[-1] in found


def part(of: bytes) -> bytes:
    """Bytes behind their length, as Protobuf has them."""
    return unsigned(len(of)) + of


def field(number, kind, of="", *, repeated=False, name="m"):
    """A field of a message's description."""
    said = b"\x0a" + part(name.encode()) + b"\x18" + bytes([number])
    said += b"\x20" + bytes([3 if repeated else 1]) + b"\x28" + bytes([kind])
    return b"\x12" + part(said + (b"\x32" + part(of.encode()) if of else b""))
