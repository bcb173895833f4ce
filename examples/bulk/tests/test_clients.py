"""The published client `elasticsearch`, as people use it.

It needs the plug-in and that package to be installed: `pip install -e .[test]`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
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
