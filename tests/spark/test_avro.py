"""Columns of Avro events that stood behind a schema registry's header."""

from __future__ import annotations

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
from gateway.spark.rows.avro import schemas_in

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
    answers = {
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
    run_once()
    spool.put("gw", 31, [long(16)], content_type=ours, **how)
    run_once()
    rows = {row["lsn"]: row for row in table_rows(config.data_dir / "lake/events")}
    found = {lsn: row["item"] for lsn, row in rows.items()}
    assert found == {1: 12, 2: 13, 11: 14, 21: None, 22: None, 23: None, 31: 16}
    assert {lsn for lsn, row in rows.items() if row["misfits"]} == {21, 22, 23}
    assert sorted(registry.asked) == [
        "/schemas/ids/10", "/schemas/ids/9", "/v1/groups/shop%2Forders/encodings/0",
    ]  # fmt: skip
    assert schemas_in(folder).keys() == {"9", "shop/orders/0"}
