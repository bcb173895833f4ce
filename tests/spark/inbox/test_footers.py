"""Where tasks read the bucket the job has only the footers of its files, and some of them whole."""

import io
import random

import pyarrow as pa
import pyarrow.parquet as pq

from gateway.spark.bucket import copies
from gateway.spark.files import footers
from gateway.store import digests
from gateway.store.names import parse_file_name
from gateway.store.node.incarnation import KEY


def small(word: str) -> bytes:
    """A file that is smaller than what is asked for of a footer."""
    table = pa.table({"lsn": [1]}).replace_schema_metadata({KEY: word})
    out = io.BytesIO()
    pq.write_table(table, out)
    return out.getvalue()


def large(incarnation: str, *, words: int = 0) -> bytes:
    """A file of 100,000 bytes and some, with so many bytes more of words in its footer."""
    payload = [random.Random(n).randbytes(1000) for n in range(100)]
    table = pa.table({"lsn": [*range(1, 101)], "payload": payload})
    out = io.BytesIO()
    said = {KEY: incarnation, b"more": b"x" * words}
    pq.write_table(table.replace_schema_metadata(said), out, compression="none")
    return out.getvalue()


def test_where_tasks_read_the_bucket_only_footers_come(world):
    """A copy has the size of what it is of, and says which events it has; no request is for
    more than that, but the first for a footer that is larger than those before."""
    asked: list[int] = []
    files = {
        world.put(1 + n, 1 + n): large(f"by-{n}", words=9000 if n else 0)
        for n in range(4)
    }
    world.bucket.objects |= files
    whole = world.put(1, 5, "gw-2")
    world.bucket.objects[whole] = small("other")
    inbox = world.inbox(most_bytes=1 << 30, whole=False)
    read = world.bucket.read

    def reading(name: str, first: int = 0) -> bytes:
        data = read(name, first)
        asked.append(len(data))
        return data

    world.bucket.read = reading  # type: ignore[method-assign]
    assert inbox.look() == len(files) + 1
    for number, (name, data) in enumerate(files.items()):
        path = world.folder / name
        assert path.stat().st_size == len(data)
        assert footers.is_alone(path)
        assert digests.said(pq.read_metadata(path).metadata, KEY) == f"by-{number}"
        assert pq.read_metadata(path).num_rows == 100
    assert (world.folder / whole).read_bytes() == small("other")
    assert len(asked) == len(files) + 1 + 1
    assert sum(asked) < 0.2 * sum(map(len, files.values()))
    for name in files:
        world.commit(name)
    inbox.look()
    kept = {name: data for name, data in world.bucket.objects.items() if "/" in name}
    assert kept == {f"_archive/{name}": files[name] for name in files}


def test_a_damaged_length_has_no_other_file_come_whole(world, monkeypatch):
    """It is that of one footer; of those of others not much more is asked for than before."""
    monkeypatch.setattr(copies, "MOST_FOOTER_BYTES", 10_000)
    names = [world.put(n, n) for n in (1, 2)]
    damaged = large("one")[:-8] + (1 << 31).to_bytes(4, "little") + b"PAR1"
    world.bucket.objects |= {names[0]: damaged, names[1]: large("one")}
    assert world.inbox(most_bytes=1 << 30, whole=False).look() == 2
    assert (world.folder / names[0]).read_bytes() == damaged
    assert footers.is_alone(world.folder / names[1])


def test_a_footer_that_is_cut_short_is_not_a_file(world):
    """It is asked for again."""
    name = world.put(1, 5)
    world.bucket.objects[name] = large("new")
    read = world.bucket.read
    world.bucket.read = lambda name, first=0: read(name, first)[:-9]  # type: ignore[method-assign]
    inbox = world.inbox(most_bytes=1 << 30, whole=False)
    assert inbox.look() == 0
    assert world.here() == []
    world.bucket.read = read  # type: ignore[method-assign]
    assert inbox.look() == 1


def test_what_a_batch_could_not_read_comes_whole(world, caplog):
    """So that it is known which of its files is damaged.  What somebody has removed, or
    changed, after its footer was fetched, is no copy of anything; a small file is, and is
    put back once that is known to be sound."""
    names = [world.put(n, n) for n in range(1, 8)]
    before = {name: large(name) for name in names[:3]}
    before |= {name: world.bucket.objects[name] for name in names[3:]}
    world.bucket.objects |= before
    inbox = world.inbox(most_bytes=1 << 30, whole=False)
    assert inbox.look() == len(names)
    files = [file for name in names if (file := parse_file_name(name))]
    assert inbox.mend(files) == []
    del world.bucket.objects[names[1]]
    world.bucket.objects[names[2]] = small("other")
    del world.bucket.objects[names[4]]
    world.bucket.objects[names[5]] = b"x" * 99
    (world.folder / names[6]).unlink()
    del world.bucket.objects[names[6]]
    there = dict(world.bucket.objects)
    assert inbox.complete(files) == names[:3]
    assert world.bucket.objects == there
    assert inbox.mend(files) == names[4:6]
    assert world.here() == [names[0], *names[3:6]]
    for name in world.here():
        assert (world.folder / name).read_bytes() == before[name]
        assert world.bucket.objects[name] == before[name]
    assert inbox.complete(files) == inbox.mend(files) == []
    assert caplog.text.count("it had is in no table") == 2
    assert inbox.look() == 1
    assert (world.folder / names[2]).read_bytes() == small("other")


def test_of_copies_that_tasks_read_none_is_compared(world):
    """Where they run on this machine; but one that was fetched for a cluster's is completed."""
    names = [world.put(n, n) for n in (1, 2)]
    world.bucket.objects[names[0]] = large("new")
    world.inbox(most_bytes=1 << 30, whole=False).look()
    inbox = world.inbox(most_bytes=1 << 30)
    world.bucket.requests.clear()
    files = [file for name in names if (file := parse_file_name(name))]
    assert inbox.complete(files) == names[:1]
    assert inbox.mend(files) == []
    assert world.bucket.requests == [("read", names[0])]
    assert (world.folder / names[0]).read_bytes() == world.bucket.objects[names[0]]
