"""What footers of a batch's files say of when its events came."""

import math

import pyarrow.parquet as pq

from gateway.spark.files import footers
from gateway.store.names import parse_file_name

_DAY = 86_400_000_000


def test_the_days_on_which_events_came_are_counted(spool):
    """By which a batch may have a file open for each; where statistics lack, they may be
    any."""
    for number, day in enumerate((0, 0, 5, 400)):
        spool.put("gw", 1 + number, [b"{}"], received_at=day * _DAY + number)
    files = list(map(parse_file_name, spool.names()))
    assert footers.read(spool.path, files).days == 3
    assert footers.read(spool.path, files[:2]).days == 1
    path = spool.path / spool.names()[0]
    pq.write_table(pq.ParquetFile(path).read(), path, write_statistics=False)
    assert footers.read(spool.path, files).days == math.inf
