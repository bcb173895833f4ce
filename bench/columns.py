"""What `gateway spark columns --suggest` makes of documents of thirty shapes, and what DuckDB's
`read_json_auto` makes of the same.

    python bench/columns.py                 100,000 documents; what it said, and in which time
    python bench/columns.py --spool FOLDER  only writes them there, as spool files

The shapes are those that senders of these protocols have: ECS of Filebeat, Docker's and
nginx's logs, events of Kubernetes, a game, sensors; nested, dotted, of mixed types.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from gateway.event import SCHEMA
from gateway.spark.rows.suggestion import Survey, newest
from gateway.store.names import file_name

_Made = dict[str, Any]
_Shape = Callable[[int, random.Random], _Made]


def _stamp(n: int) -> str:
    return f"2026-11-{1 + n % 28:02d}T{n // 3600 % 24:02d}:{n // 60 % 60:02d}:{n % 60:02d}.{n % 1000:03d}Z"


def _ecs(n: int, dice: random.Random) -> _Made:
    return {
        "@timestamp": _stamp(n),
        "message": f"line {n}",
        "ecs": {"version": "8.0.0"},
        "agent": {"id": f"a-{n % 9}", "type": "filebeat", "version": "9.1.2"},
        "host": {"name": f"web-{n % 40}", "ip": ["10.0.0.1", "fe80::1"]},
        "log": {"offset": n * 120, "file": {"path": f"/var/log/app-{n % 7}.log"}},
        "input": {"type": "filestream"},
    }


def _nginx(n: int, dice: random.Random) -> _Made:
    return _ecs(n, dice) | {
        "http": {
            "request": {"method": dice.choice(("GET", "POST")), "bytes": n % 900},
            "response": {
                "status_code": dice.choice((200, 200, 404, 500)),
                "body": {"bytes": dice.randrange(10**6)},
            },
        },
        "url": {"path": f"/api/{n % 50}", "query": None if n % 3 else "q=1"},
        "source": {"address": f"192.0.2.{n % 250}", "port": 1024 + n % 60000},
        "event": {"duration": dice.random() * 10, "dataset": "nginx.access"},
        "tags": ["nginx", "edge"] if n % 4 else "nginx",
    }


def _dotted(n: int, dice: random.Random) -> _Made:
    return {
        "@timestamp": _stamp(n),
        "log.level": dice.choice(("info", "warn", "error")),
        "log.logger": "shop.Cart",
        "process.thread.name": f"pool-{n % 8}",
        "service.name": "shop",
        "trace.id": f"{dice.randrange(2**64):016x}",
        "error.stack_trace": None if n % 20 else "at x.y.Z",
        "message": "text",
    }


def _docker(n: int, dice: random.Random) -> _Made:
    return {
        "log": f"text {n}\n",
        "stream": dice.choice(("stdout", "stderr")),
        "time": _stamp(n),
        "attrs": {"tag": "web", "com.docker.compose.service": "web"},
    }


def _kubernetes(n: int, dice: random.Random) -> _Made:
    return {
        "kind": "Event",
        "apiVersion": "v1",
        "type": dice.choice(("Normal", "Warning")),
        "reason": "Scheduled",
        "count": 1 + n % 5,
        "firstTimestamp": _stamp(n),
        "lastTimestamp": _stamp(n + 9),
        "involvedObject": {"kind": "Pod", "name": f"web-{n % 99}", "uid": f"u{n}"},
        "metadata": {
            "labels": {
                "app.kubernetes.io/name": "web",
                "pod-template-hash": f"{n % 9}",
            },
            "annotations": {f"example.org/{n}": "x"},
            "creationTimestamp": _stamp(n),
        },
    }


def _game(n: int, dice: random.Random) -> _Made:
    return {
        "route": "area.score",
        "userId": n % 500,
        "points": dice.randrange(1000),
        "position": {"x": dice.random(), "y": n % 7},
        "items": [{"sku": f"s{n % 9}", "count": n % 3}],
        "won": bool(n % 2),
        "playedAt": 1_795_000_000_000 + n,
        "price": f"{n % 90}.{n % 100:02d}",
    }


def _sensor(n: int, dice: random.Random) -> _Made:
    return {
        "ts": 1_795_000_000 + n,
        "bat": "low" if n % 9 == 0 else n % 100,
        "temp": dice.choice((20, 20.5, -3.25)),
        "readings": [dice.random() for _ in range(3)],
        "day": f"2026-11-{1 + n % 28:02d}",
        "serial": 2**64 + n if n % 50 == 0 else n,
        "firmware": "1.10",
        "null": None,
    }


BASES: tuple[tuple[str, str, _Shape], ...] = (
    ("beats", "lumberjack", _ecs),
    ("beats", "lumberjack", _nginx),
    ("beats", "lumberjack", _dotted),
    ("containers", "lumberjack", _docker),
    ("cluster", "pravega", _kubernetes),
    ("game", "pomelo", _game),
    ("sensors", "rsio", _sensor),
)


def _shape(which: int, n: int, dice: random.Random) -> tuple[str, str, _Made]:
    """One of thirty: a base, and what this application adds of its own."""
    listener, protocol, base = BASES[which % len(BASES)]
    made = base(n, dice)
    if which >= len(BASES):
        made[f"app{which}"] = {
            "version": f"{which}.{n % 3}",
            "took_ms": n % 300 if n % 10 else n / 7,
            "user.name": f"u{n % 50}",
            "flags": [bool(n % 2)],
        }
    return listener, protocol, made


def events(count: int) -> Iterator[tuple[str, str, _Made]]:
    """So many documents of the thirty shapes, in turns."""
    dice = random.Random(1)
    for n in range(count):
        yield _shape(n % 30, n, dice)


def publish(folder: Path, count: int, files: int = 4) -> None:
    """Spool files of them."""
    made = list(events(count))
    folder.mkdir(parents=True, exist_ok=True)
    each = -(-count // files)
    for first in range(0, count, each):
        part = made[first : first + each]
        same = {"node": "gw", "session": "s", "peer": "192.0.2.1:1", "kind": "data"}
        same["content_type"] = "application/json"
        columns: dict[str, Any] = {
            "lsn": list(range(first + 1, first + 1 + len(part))),
            "received_at": [int(time.time() * 1e6)] * len(part),
            "seq": list(range(len(part))),
            "listener": [listener for listener, _, _ in part],
            "protocol": [protocol for _, protocol, _ in part],
            "payload": [json.dumps(one).encode() for _, _, one in part],
        }
        arrays = [
            pa.array(columns.get(f.name, [same.get(f.name)] * len(part)), f.type)
            if not pa.types.is_dictionary(f.type)
            else pa.array(
                columns.get(f.name, [same.get(f.name)] * len(part)), f.type.value_type
            ).dictionary_encode()
            for f in SCHEMA
        ]
        name = file_name("gw", "aaaaaaaaaa", first + 1, first + len(part))
        pq.write_table(
            pa.table(arrays, schema=SCHEMA), folder / name, compression="zstd"
        )


def _duckdb(folder: Path, count: int) -> Counter[str]:
    """The types of its columns, by path."""
    import duckdb

    text = folder / "all.json"
    with text.open("w") as lines:
        for _, _, one in events(count):
            lines.write(json.dumps(one) + "\n")
    begun = time.monotonic()
    found = duckdb.sql(f"DESCRIBE FROM read_json_auto('{text}', sample_size=-1)")
    rows = found.fetchall()
    print(f"\nDuckDB's read_json_auto: {time.monotonic() - begun:.1f} s")
    for name, kind, *_ in rows:
        print(f"{name}: {kind}")
    return Counter(name for name, *_ in rows)


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--spool", type=Path)
    options = parser.parse_args()
    if options.spool is not None:
        publish(options.spool, options.events)
        return 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        publish(folder / "spool", options.events)
        begun = time.process_time()
        survey = Survey({})
        for event in newest((folder / "spool").iterdir(), options.events):
            survey.add(event)
        made = survey.suggestions()
        for one in made:
            print(one.line(survey.events))
        print(
            f"\n{len(made)} columns, {survey.left_out} left out, of"
            f" {survey.events.total()} events in {time.process_time() - begun:.1f} s of CPU"
        )
        _duckdb(folder, options.events)
    return 0


if __name__ == "__main__":
    sys.exit(main())
