"""How tables in object storage are reached: what the configuration says of it."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.audit.remote import Access, access_of
from gateway.config import load
from gateway.sinks.delta import storage_options
from gateway.sinks.iceberg import properties

_S3 = {
    "endpoint": "http://127.0.0.1:9000",
    "region": "eu-1",
    "access_key_id": "KEY",
    "secret_access_key": "SECRET",
}


def told(tmp_path: Path, s3: Any = None, **spark: Any) -> Access:
    path = tmp_path / "gateway.yaml"
    listener = {"name": "a", "protocol": "lumberjack", "listen": "tcp:127.0.0.1:0"}
    content = {"node": "gw", "data_dir": "data", "listeners": [listener]}
    content |= {"spool": {"s3": s3 or {}}, "spark": spark}
    path.write_text(yaml.safe_dump(content))
    return access_of(load(path))


def test_a_table_is_reached_as_the_spool_is(tmp_path):
    """Nothing else needs to be said where both are in one place."""
    assert told(tmp_path, _S3) == Access(**_S3)
    assert told(tmp_path) == Access()


def test_what_the_catalog_says_goes_before(tmp_path):
    """It is told of the very table; then what Hadoop is told."""
    s3a = {
        "spark.hadoop.fs.s3a.access.key": "HADOOP",
        "spark.hadoop.fs.s3a.secret.key": "OF-HADOOP",
        "spark.hadoop.fs.s3a.endpoint": "https://hadoop",
    }
    catalog = {
        "spark.sql.catalog.own.s3.endpoint": "https://catalog",
        "spark.sql.catalog.own.client.region": "eu-2",
    }
    found = told(tmp_path, _S3, sink="iceberg", table="own.a.b", conf=s3a | catalog)
    assert found == Access("https://catalog", "eu-2", "HADOOP", "OF-HADOOP")


def test_no_secret_is_shown():
    """Wherever it is printed."""
    assert "SECRET" not in repr(Access(**_S3))


@pytest.mark.parametrize("virtual", [False, True])
def test_each_reader_is_told_in_its_own_words(virtual):
    """What is not known is left to it."""
    access = Access(**_S3, virtual_hosted=virtual)
    assert properties(access)["s3.access-key-id"] == "KEY"
    assert storage_options(access)["AWS_ALLOW_HTTP"] == "true"
    for told_ in (properties(access), storage_options(access)):
        assert str(virtual).lower() in told_.values()
    assert set(storage_options(Access())) == {"AWS_VIRTUAL_HOSTED_STYLE_REQUEST"}
