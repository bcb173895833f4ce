"""Published clients, as people use them.

They need the plug-in and PyPI's `elasticsearch` to be installed: `pip install -e .[test]`.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.plugins import installed
from gateway_testkit.daemon import Daemon, listener

pytestmark = pytest.mark.skipif(
    "bulk" not in installed().protocols, reason="gateway-bulk is not installed"
)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    options = {"tokens": {"shop": "s3cret"}}
    listeners = [listener("bulk", "bulk", options=options)]
    with Daemon(tmp_path_factory.mktemp("bulk"), {"listeners": listeners}) as daemon:
        yield daemon


@pytest.mark.parametrize("compress", [False, True])
def test_python(daemon: Daemon, *, compress: bool) -> None:
    """Its `helpers.bulk`, with a key, with ids and without."""
    elasticsearch = pytest.importorskip("elasticsearch")
    from elasticsearch import helpers

    before = daemon.status()["journal"]["durable_lsn"]
    host, port = daemon.address("bulk")
    client: Any = elasticsearch.Elasticsearch(
        f"http://{host}:{port}", api_key="s3cret", http_compress=compress
    )
    assert client.ping()
    assert client.info()["version"]["number"].startswith("8.")
    actions = [
        {
            "_op_type": "create" if number % 2 else "index",
            "_index": "shop",
            **({"_id": str(number)} if number % 3 else {}),
            "_source": {"message": f"it is late: {number}"},
        }
        for number in range(2000)
    ]
    assert helpers.bulk(client, actions) == (2000, [])
    with pytest.raises(helpers.BulkIndexError):
        helpers.bulk(client, [{"_op_type": "delete", "_index": "shop", "_id": "1"}])
    client.close()
    daemon.settled(before + 2000)
    rows = daemon.rows()[before:]
    assert {(row["flaw"], row["channel"], row["principal"]) for row in rows} == {
        (None, "shop", "shop")
    }
    events = [json.loads(row["payload"]) for row in rows]
    assert events == [
        {**({"_id": str(n)} if n % 3 else {}), "message": f"it is late: {n}"}
        for n in range(2000)
    ]


_OMELASTICSEARCH = [*Path("/usr/lib").glob("*/rsyslog/omelasticsearch.so")]


@pytest.mark.needs_apt
@pytest.mark.skipif(
    not (_OMELASTICSEARCH and shutil.which("rsyslogd")),
    reason="there is no rsyslogd with rsyslog-elasticsearch here",
)
def test_rsyslog(daemon: Daemon, tmp_path: Path) -> None:
    """Its omelasticsearch, with a password, sends the lines of a file."""
    before = daemon.status()["journal"]["durable_lsn"]
    host, port = daemon.address("bulk")
    source, config = tmp_path / "shop.log", tmp_path / "rsyslog.conf"
    source.write_text("".join(f"it is late: {number}\n" for number in range(1000)))
    config.write_text(
        f"""
        global(workDirectory="{tmp_path}")
        module(load="imfile")
        module(load="omelasticsearch")
        input(type="imfile" File="{source}" Tag="shop:" Severity="notice")
        template(name="document" type="list" option.jsonf="on") {{
            property(outname="message" name="msg" format="jsonf")
        }}
        action(type="omelasticsearch" server="{host}" serverport="{port}" uid="shop"
               pwd="s3cret" searchIndex="logs" searchType="" bulkmode="on"
               template="document" queue.type="linkedlist")
        """
    )
    arguments = ["-n", "-f", str(config), "-i", str(tmp_path / "pid")]
    process = subprocess.Popen(["rsyslogd", *arguments])
    try:
        daemon.settled(before + 1000)
    finally:
        process.terminate()
        process.wait()
    rows = daemon.rows()[before:]
    assert {(row["channel"], row["principal"]) for row in rows} == {("logs", "shop")}
    assert [json.loads(row["payload"])["message"].strip() for row in rows] == [
        f"it is late: {number}" for number in range(1000)
    ]
