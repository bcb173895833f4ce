"""The digests in spool files: anybody can compute them again from the files alone."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from blake3 import blake3

from gateway.event import Batch, Origin
from gateway.store.digests import NOTHING, PayloadDigest
from gateway.store.directories import Directories
from gateway.store.mark import Mark
from gateway.store.opening import Opened
from gateway.store.spool.catalog_lines import entries


def publish(opened: Opened, *bodies: bytes) -> Path:
    """One file with the payloads of these batches."""
    origin = Origin("plain", "l", "s-1", "[::1]:9")
    opened.log.commit(
        [Batch(origin, 1, one.count(b",") + 1, one, len(one)) for one in bodies]
    )
    sealed = opened.log.seal()
    assert sealed is not None
    published = opened.publisher.publish(sealed)
    assert published is not None
    return published.path


def by_hand(path: Path) -> str:
    """As docs/symptoms.md tells a third party to do it."""
    payloads = pq.read_table(path, columns=["payload"])["payload"].to_pylist()
    digest = blake3(b"".join(payloads))
    for number in (*map(len, payloads), len(payloads)):
        digest.update(number.to_bytes(8, "little"))
    return str(digest.hexdigest())


def said(path: Path, key: bytes) -> str | None:
    value = pq.read_metadata(path).metadata.get(key)
    return None if value is None else value.decode()


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_file_says_the_digest_of_its_payloads(start: Callable[..., Opened]) -> None:
    """Empty payloads count, and so does where one ends and the next begins."""
    opened = start("plain")
    one = publish(opened, b"a,bc,,d", b"e" * 5000)
    two = publish(opened, b"ab,c,,d", b"e" * 5000)
    for path in (one, two):
        assert said(path, b"gateway.payloads.blake3") == by_hand(path)
        assert said(path, b"gateway.payloads") is None, "that is SHA-256"
    assert by_hand(one) != by_hand(two)


def test_the_digest_is_that_of_the_rows_however_they_come() -> None:
    """Row groups, slices and blocks do not matter."""
    payloads = [b"%d" % n * (n % 7) for n in range(500)]
    whole, pieces = PayloadDigest(), PayloadDigest()
    whole.add(pa.array(payloads, pa.binary()))
    array = pa.array([b"not mine", *payloads, b"nor mine"], pa.binary())
    for at in range(1, 501, 50):
        pieces.add(array.slice(at, 50))
        pieces.add(array.slice(at, 0))
    assert whole.hexdigest() == pieces.hexdigest()
    none, empty = PayloadDigest(), PayloadDigest()
    empty.add(pa.array([b""], pa.binary()))
    assert none.hexdigest() != empty.hexdigest()


def test_each_file_has_the_link_of_the_one_before(
    start: Callable[..., Opened], directories: Directories
) -> None:
    """It is what `sha256sum` prints; the catalog has it too, and a restart goes on."""
    opened = start("plain")
    paths = [publish(opened, b"a"), publish(opened, b"b,c")]
    opened = start("plain")
    assert opened.publisher.link == (3, sha256(paths[1]))
    paths.append(publish(opened, b"d"))
    assert said(paths[0], b"gateway.previous") == NOTHING
    for before, after in pairwise(paths):
        assert said(after, b"gateway.previous") == sha256(before)
    catalog = entries((directories.journal_of("gw") / "catalog").read_bytes())
    assert [(one.payloads, one.blake3, one.sha256) for one in catalog] == [
        ("", by_hand(path), sha256(path)) for path in paths
    ]


@pytest.mark.parametrize("where", ["spool", "archive", "poison"])
def test_a_catalog_that_is_gone_breaks_no_chain(
    start: Callable[..., Opened], directories: Directories, where: str
) -> None:
    """Nor one of an earlier version: the newest file is read for its link."""
    opened = start("plain")
    path = publish(opened, b"a,b")
    opened.marker.write(Mark(2, 2, 2), now=True)
    (directories.root / where).mkdir(exist_ok=True)
    path = path.rename(directories.root / where / path.name)
    (directories.journal_of("gw") / "catalog").unlink()
    link = sha256(path)
    start("plain")
    path.unlink()
    after = publish(start("plain"), b"c")
    assert said(after, b"gateway.previous") == link, (
        "the mended line has it from then on"
    )


@pytest.mark.parametrize("known", [True, False])
def test_the_mark_has_the_link_when_catalog_and_file_are_gone(
    start: Callable[..., Opened], directories: Directories, known: bool
) -> None:
    """A file whose predecessor nobody knows says nothing of it."""
    opened = start("plain")
    path = publish(opened, b"a,b")
    link = sha256(path) if known else ""
    opened.marker.write(Mark(2, 2, 2, link), now=True)
    (directories.journal_of("gw") / "catalog").unlink()
    path.unlink()
    after = publish(start("plain"), b"c")
    assert said(after, b"gateway.previous") == (link or None)


@pytest.mark.parametrize("where", ["spool", "poison"])
def test_the_mark_knows_better_than_a_file_that_was_damaged(
    start: Callable[..., Opened], directories: Directories, where: str
) -> None:
    """The next file names what was published, so that the damage shows."""
    opened = start("plain")
    path = publish(opened, b"a,b")
    link = sha256(path)
    opened.marker.write(Mark(2, 2, 2, link), now=True)
    (directories.journal_of("gw") / "catalog").unlink()
    (directories.root / where).mkdir(exist_ok=True)
    path = path.rename(directories.root / where / path.name)
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    assert said(publish(start("plain"), b"c"), b"gateway.previous") == link


def test_what_was_hidden_in_a_crash_keeps_its_link(
    start: Callable[..., Opened], directories: Directories
) -> None:
    """Killed between the catalog's line and the name."""
    path = publish(start("plain"), b"a,b")
    path.rename(path.with_name(f".{path.name}"))
    after = publish(start("plain"), b"c")
    assert said(after, b"gateway.previous") == sha256(path)
