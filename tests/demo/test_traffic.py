"""The demo's questions to the tables: answered from Parquet files, and drawn."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from xml.etree import ElementTree as ET

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gateway_demo.traffic import Talker, draw, talkers, traffic

FIRST = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)


@pytest.fixture
def lake(tmp_path) -> Path:
    """Two files: 12 s of an access log, and a listener whose rows have no message."""
    rows = [
        {
            "received_at": FIRST + timedelta(seconds=second),
            "listener": "beats",
            "host": f"web-{second % 2}",
            "message": f'192.0.2.1 - - "GET / HTTP/1.1" {404 if second == 11 else 200} 5',
        }
        for second in range(12)
    ]
    other = [
        {
            "received_at": FIRST + timedelta(seconds=3),
            "listener": "game",
            "host": None,
            "message": None,
        }
    ] * 10
    for number, some in enumerate((rows, other)):
        path = tmp_path / "events" / f"date=2026-01-31/part-{number}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        schema = pa.schema(
            {
                "received_at": pa.timestamp("us", tz="UTC"),
                "listener": pa.string(),
                "host": pa.string(),
                "message": pa.string(),
            }
        )
        pq.write_table(pa.Table.from_pylist(some, schema=schema), path)
    return tmp_path


def test_talkers_are_hosts_with_their_errors(lake):
    assert talkers(lake) == [Talker("web-0", 6, 0), Talker("web-1", 6, 1)]
    assert talkers(lake, most=1) == [Talker("web-0", 6, 0)]


def test_traffic_is_counted_in_slices_of_five_seconds(lake):
    found = traffic(lake)
    assert found is not None
    assert found.seconds == [0, 5, 10]
    assert found.rates == {"beats": [1.0, 1.0, 0.4], "game": [2.0, 0.0, 0.0]}
    assert found.errors == [0.0, 0.0, 0.5]


def test_without_tables_there_is_nothing_to_tell(tmp_path):
    assert talkers(tmp_path) == []
    assert traffic(tmp_path) is None


def test_the_picture_is_one(lake, tmp_path):
    found = traffic(lake)
    assert found is not None
    draw(found, tmp_path / "traffic.svg")
    assert ET.parse(tmp_path / "traffic.svg").getroot().tag.endswith("svg")
    draw(found, tmp_path / "traffic.png")
    assert (tmp_path / "traffic.png").read_bytes().startswith(b"\x89PNG")
