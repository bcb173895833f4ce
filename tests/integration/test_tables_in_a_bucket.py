"""The audit of tables in object storage, which others than Spark have written there."""

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from deadlines import eventually
from gateway.audit import Report, audit
from gateway.audit.acknowledged import search
from gateway.audit.payloads import compare_payloads
from gateway.audit.remote import Access
from gateway.audit.sites import Site
from gateway.sinks.delta import storage_options
from gateway.store.directories import Directories
from gateway_testkit.seaweed import NAMESPACE, Seaweed
from seaweeds import BUCKET, settings_of

pytestmark = pytest.mark.slow

Append = Callable[[pa.Table], None]


def events(first: int, last: int) -> pa.Table:
    """As the tables have them."""
    count = last - first + 1
    body = [json.dumps({"event": {"id": f"e{n}"}}) for n in range(first, last + 1)]
    return pa.table(
        {
            "node": pa.array(["gw-1"] * count, pa.string()),
            "lsn": pa.array(range(first, last + 1), pa.int64()),
            "body": pa.array(body, pa.string()),
            "payload": pa.array([None] * count, pa.binary()),
        }
    )


@pytest.fixture
def access(seaweed) -> Access:
    return Access(**settings_of(seaweed.url))


@pytest.fixture
def places(tmp_path) -> Directories:
    places = Directories.under(tmp_path / "data")
    (places.lake / ".gateway").mkdir(parents=True)
    return places


def settle(places: Directories, **sink: str) -> None:
    """Where the table is, as the job leaves word."""
    (places.lake / ".gateway" / "sink.json").write_text(json.dumps(sink))


def iceberg(places: Directories, seaweed: Seaweed, access: Access) -> Append:
    """A table of the server's own catalog."""
    eventually(seaweed.takes_tables, "the server has the bucket for its tables")
    catalog = seaweed.catalog_reached()
    table = catalog.create_table(f"{NAMESPACE}.events", schema=events(1, 1).schema)

    def append(rows: pa.Table) -> None:
        table.append(rows)
        where = catalog.load_table(f"{NAMESPACE}.events").metadata_location
        settle(places, sink="iceberg", table="lake.gateway.events", metadata=where)

    return append


def delta(places: Directories, seaweed: Seaweed, access: Access) -> Append:
    """A table beside the spool."""
    from deltalake import write_deltalake

    url = f"s3://{BUCKET}/lake/events"
    settle(places, sink="delta", table=url)
    # One writer needs no lock.
    options = {**storage_options(access), "AWS_S3_ALLOW_UNSAFE_RENAME": "true"}
    return lambda rows: write_deltalake(
        url, rows, mode="append", storage_options=options
    )


@pytest.mark.parametrize("table", [iceberg, delta])
def test_a_table_in_a_bucket_is_read_where_it_is(table, places, seaweed, access):
    """Every event once, holes and doubles by lsn, acknowledged ids, payloads."""

    place = Site(places, access=access)

    def look() -> Report:
        return audit(place, pause=lambda _: None)

    append = table(places, seaweed, access)
    append(events(1, 50))
    append(events(61, 80))
    report = look()
    assert [(one.first, one.last) for one in report.holes["gw-1"]] == [(51, 60)]
    append(events(51, 60))
    report = look()
    assert report.complete
    assert report.events == 80
    ids = [f"e{n}" for n in range(1, 82)]
    assert search(place, ids, {}).missing == ["e81"]
    assert compare_payloads(place).uncompared == 80
    append(events(80, 80))
    report = look()
    [double] = report.doubles["gw-1"]
    assert (double.first, double.last) == (80, 80)
    assert len(double.files) == 2
    assert all(file.startswith("s3://") for file in double.files)


def test_who_may_not_read_a_table_gets_a_sentence(places, seaweed, access):
    delta(places, seaweed, access)(events(1, 5))
    stranger: Any = {**settings_of(seaweed.url), "access_key_id": "nobody"}
    with pytest.raises(OSError, match=f"s3://{BUCKET}/lake/events can not be read"):
        audit(Site(places, access=Access(**stranger)), pause=lambda _: None)
