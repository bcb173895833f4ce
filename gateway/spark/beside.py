"""The Spark job with a streaming query of one's own beside it, in one session.

    def start(spark, data):                       # *data* is the `data_dir`
        rows = spark.readStream.schema(…).parquet(f"{data}/lake/events")
        return rows.writeStream.foreachBatch(push).….start()

    sys.exit(beside.run("gateway.yaml", start))

One Java instead of two.  `put` writes what the query computed as a file of an outbox, from
where the gateway pushes it to Pomelo's clients.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from gateway.spark import job
from gateway.spark.job import Start


def put(outbox: Path, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write the file *name* of the directory *outbox*, a row a line; it appears whole.

    A name that was pushed already is not pushed again: a batch that Spark repeats after
    a crash must have the same one.
    """
    outbox.mkdir(parents=True, exist_ok=True)
    hidden = outbox / f".{name}"
    hidden.write_text("\n".join(json.dumps(row) for row in rows))
    hidden.rename(outbox / name)


def run(config_path: str | Path, start: Start, *, as_json: bool = True) -> int:
    """Run the job and the query that *start* begins, until SIGTERM or SIGINT.

    Returns the exit status of the job; also 1 if the query failed.  Standard error says why.
    """
    options = argparse.Namespace(config=Path(config_path), once=False, json=as_json)
    return job.start(options, beside=start)
