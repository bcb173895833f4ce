"""Columns of Avro and Protobuf events that stood behind a schema registry's header."""

import base64
import datetime as dt
import decimal
import json
import struct
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace

import pytest

from gateway.spark.commit.ledger import Broken
from gateway.spark.rows.framed import schemas_in

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
    left, made = (n << 1) ^ (n >> 63), bytearray()
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


@pytest.fixture
def registry():
    """A registry's REST, Pravega's and Confluent's, and what it was asked."""
    asked = []
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
        },
    }
    answers = {
        "/v1/groups/shop%2Fproto/encodings/0": of_protobuf,
        "/v1/groups/shop%2Forders/encodings/0": of_pravega,
        "/schemas/ids/9": {"schema": json.dumps(OTHER)},
        "/schemas/ids/10": {"schema": "syntax …", "schemaType": "PROTOBUF"},
    }

    class Rest(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            found = answers.get(self.path)
            self.send_response(404 if found is None else 200)
            self.end_headers()
            self.wfile.write(json.dumps(found).encode())

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Rest) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield SimpleNamespace(url=f"http://127.0.0.1:{server.server_port}", asked=asked)
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
