"""The digests in spool files: anybody can compute them again from the files alone."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from blake3 import blake3

from catalogs import published_in
from fenced import blocks
from gateway.event import Batch, Origin
from gateway.store.digests import NOTHING, EventsDigest, are_same, of_file
from gateway.store.node.mark import Mark
from gateway.store.opening import Opened

TIME = pa.timestamp("us", "UTC")


def publish(opened: Opened, *bodies: bytes) -> Path:
    """One file with the payloads of these batches."""
    origin = Origin("plain", "l", "s-1", "[::1]:9")
    opened.log.commit(
        [Batch(origin, 1, one.count(b",") + 1, one, len(one)) for one in bodies]
    )
    sealed = opened.log.seal()
    assert sealed is not None
    [published] = opened.publisher.publish(sealed)
    return published.path


[BY_HAND] = blocks("docs/symptoms.md", "python")


def by_hand(path: Path) -> str:
    """As docs/symptoms.md tells a third party to do it: it compares the digest, too."""
    found: dict[str, Any] = {"file": path}
    exec(compile(BY_HAND.text, BY_HAND.page, "exec"), found)
    assert found["link"] == link(path)
    return str(found["events"])


def said(path: Path, key: bytes) -> str | None:
    value = pq.read_metadata(path).metadata.get(key)
    return None if value is None else value.decode()


def link(path: Path) -> str:
    """Likewise."""
    both = f"{said(path, b'gateway.events')}{said(path, b'gateway.previous') or ''}"
    return str(blake3(both.encode()).hexdigest())


def test_a_file_says_the_digest_of_its_events(opened):
    """Empty payloads count, and so does where one ends and the next begins."""
    one = publish(opened, b"a,bc,,d", b"e" * 5000)
    two = publish(opened, b"ab,c,,d", b"e" * 5000)
    for path in (one, two):
        assert said(path, b"gateway.events") == by_hand(path) == of_file(path)
    assert by_hand(one) != by_hand(two)


def events(payloads: list[bytes], times: list[int], first: int = 1) -> str:
    digest = EventsDigest(first)
    digest.add(pa.array(payloads, pa.binary()), pa.array(times, TIME))
    return digest.hexdigest()


def test_the_digest_is_that_of_the_rows_however_they_come():
    """Row groups, slices and blocks do not matter; lsns, times and payloads do."""
    payloads = [b"%d" % n * (n % 7) for n in range(500)]
    times = list(range(7, 507))
    whole = events(payloads, times)
    pieces = EventsDigest(1)
    array = pa.array([b"not mine", *payloads, b"nor mine"], pa.binary())
    stamps = pa.array([0, *times, 0], TIME)
    for at in range(1, 501, 50):
        pieces.add(array.slice(at, 50), stamps.slice(at, 50))
        pieces.add(array.slice(at, 0), stamps.slice(at, 0))
    assert whole == pieces.hexdigest()
    assert EventsDigest(1).hexdigest() != events([b""], [0])
    assert whole != events(payloads, times, first=2)
    assert whole != events(payloads, [*times[:-1], 0])
    assert whole != events([*payloads[:-1], b"?"], times)


@pytest.mark.parametrize("how", ["none", "snappy"])
def test_the_same_events_are_the_same_whatever_their_bytes(start, tmp_path, how):
    """Another compression, version and link of the file before; not another payload."""
    one = publish(start("plain"), b"a,bc,,d", b"e" * 5000)
    with pq.ParquetFile(one) as file:
        table, words = file.read(), dict(file.metadata.metadata)
    again, other = tmp_path / "again.parquet", tmp_path / "other.parquet"
    for path, digest in ((again, of_file(one)), (other, "00" * 32)):
        kept = {**words, b"gateway.previous": b"1" * 64, b"gateway.events": digest}
        with pq.ParquetWriter(path, table.schema, compression=how) as writer:
            writer.write_table(table.replace_schema_metadata(None))
            writer.add_key_value_metadata(kept)
    assert one.read_bytes() != again.read_bytes()
    assert are_same(one, again)
    assert not are_same(one, other)


def test_each_file_has_the_link_of_the_one_before(opened, start, directories):
    """The catalog has it too, and a restart goes on."""
    paths = [publish(opened, b"a"), publish(opened, b"b,c")]
    opened = start("plain")
    assert opened.publisher.link == (3, link(paths[1]))
    paths.append(publish(opened, b"d"))
    assert said(paths[0], b"gateway.previous") == NOTHING
    for before, after in pairwise(paths):
        assert said(after, b"gateway.previous") == link(before)
    catalog = published_in(directories.journal_of("gw"))
    assert [(one.events, one.link) for one in catalog] == [
        (by_hand(path), link(path)) for path in paths
    ]


@pytest.mark.parametrize("where", ["spool", "archive", "poison"])
def test_a_catalog_that_is_gone_breaks_no_chain(opened, start, directories, where):
    """The newest file is read for its link."""
    path = publish(opened, b"a,b")
    opened.marker.write(opened.mark(2), now=True)
    (directories.root / where).mkdir(exist_ok=True)
    path = path.rename(directories.root / where / path.name)
    (directories.journal_of("gw") / "catalog").unlink()
    newest = link(path)
    start("plain")
    path.unlink()
    after = publish(start("plain"), b"c")
    assert said(after, b"gateway.previous") == newest, (
        "the mended line has it from then on"
    )


@pytest.mark.parametrize("known", [True, False])
def test_the_mark_has_the_link_when_catalog_and_file_are_gone(
    opened, start, directories, known
):
    """A file whose predecessor nobody knows says nothing of it."""
    path = publish(opened, b"a,b")
    newest = link(path) if known else ""
    opened.marker.write(Mark(2, 2, 2, newest), now=True)
    (directories.journal_of("gw") / "catalog").unlink()
    path.unlink()
    after = publish(start("plain"), b"c")
    assert said(after, b"gateway.previous") == (newest or None)


@pytest.mark.parametrize("where", ["spool", "poison"])
def test_the_mark_knows_better_than_a_file_that_was_damaged(
    opened, start, directories, where
):
    """The next file names what was published, so that the damage shows."""
    path = publish(opened, b"a,b")
    newest = link(path)
    opened.marker.write(Mark(2, 2, 2, newest), now=True)
    (directories.journal_of("gw") / "catalog").unlink()
    (directories.root / where).mkdir(exist_ok=True)
    path = path.rename(directories.root / where / path.name)
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    assert said(publish(start("plain"), b"c"), b"gateway.previous") == newest


def test_what_was_hidden_in_a_crash_keeps_its_link(start, directories):
    """Killed between the catalog's line and the name."""
    path = publish(start("plain"), b"a,b")
    path.rename(path.with_name(f".{path.name}"))
    after = publish(start("plain"), b"c")
    assert said(after, b"gateway.previous") == link(path)
