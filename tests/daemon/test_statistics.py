"""What the admin port shows of the storage."""

from types import SimpleNamespace
from typing import Any

from gateway.daemon import statistics
from gateway.store.digests import NOTHING, Link


def test_what_is_published_is_durable():
    """Also before the reactor has heard from the journal's thread that it is."""
    level = SimpleNamespace(files=1, bytes=10)
    storage: Any = SimpleNamespace(
        journal=SimpleNamespace(durable_lsn=3, why_full=None, oldest_wait_seconds=0.0),
        spool=SimpleNamespace(
            uploads=None,
            published_lsn=5,
            levels=SimpleNamespace(spool=level, archive=level),
        ),
        journal_bytes=0,
        link=Link(5, NOTHING),
    )
    stores = statistics.of_storage(storage, 1000)
    assert (stores.journal.durable_lsn, stores.spool.published_lsn) == (5, 5)
