"""A spool in a bucket: a machine that is lost for good, and a server that is not ours."""

import contextlib
import io
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest

from daemons import Daemon, listener
from deadlines import eventually, finish, run
from gateway.audit.acknowledged import read_ids
from gateway.spark.bucket.inbox import Inbox
from gateway.spark.commit.lakedisk import Lake
from gateway.spark.commit.ledger import Ledger, Ranges
from gateway.store.names import Life, file_name, parse_file_name
from gateway.store.node.incarnation import KEY
from gateway.store.objects.bucket import AlreadyThere, Changed, commit, probe
from gateway.store.objects.node_record import NodeRecord, name_of
from gateway.store.spool.consumed import objects_of
from incarnations import A
from making import Make
from programs import running
from seaweeds import bucket_at, keep_versions, settings_of
from small_s3 import SmallS3, small_s3


def _ids(path: Path) -> list[str]:
    return read_ids(path.read_text().splitlines()) if path.exists() else []


def in_bucket(
    prepare: Make[Daemon], free_port: Callable[[], int], url: str, roll: str, *name: str
) -> tuple[Daemon, int]:
    """A daemon without a disk of its own, started, and its port."""
    port = free_port()
    spool = {
        "directory": "s3://gateway/spool",
        "s3": settings_of(url),
        "roll_interval": roll,
    }
    beats = listener("beats", "lumberjack", listen=f"tcp:127.0.0.1:{port}")
    return prepare(*name, ack="spool", spool=spool, listeners=[beats]).start(), port


@contextlib.contextmanager
def sending(port: int, acked: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """2000 events on their way, of which *acked* says which were acknowledged."""
    words = ("lumberjack", f"127.0.0.1:{port}", "--generate", "2000", *options)
    with running() as start:
        yield start(
            *(sys.executable, "-m", "gateway.cli", "send", *words),
            *("--patience", "100000", "--acked", acked),
            stdout=subprocess.DEVNULL,
        )


def audited(daemon: Daemon, acked: Path) -> str:
    """What the audit says of a daemon that has ended, and of what was acknowledged."""
    words = ("audit", "--config", daemon.config, "--acknowledged", acked)
    done = run(sys.executable, "-m", "gateway.cli", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _words(server: SmallS3) -> dict[str, NodeRecord]:
    """What each incarnation of gw-1 says of itself."""
    begin = f"gateway/spool/{name_of('gw-1')}"
    words = [
        msgspec.json.decode(data, type=NodeRecord)
        for name, data in dict(server.objects).items()  # the server may be at work
        if name.startswith(begin)
    ]
    return {word.incarnation: word for word in words}


def _age(server: SmallS3, incarnation: str) -> None:
    """As if it had said nothing more for ten minutes."""
    server.written[f"gateway/spool/{name_of('gw-1', incarnation)}"] -= 600


def _lsns(objects: Mapping[str, bytes]) -> dict[str, list[int]]:
    """The lsns that are in files, by incarnation; each of one once."""
    found: dict[str, list[int]] = {}
    for path, data in dict(objects).items():  # the server may be at work
        if (name := parse_file_name(path.rpartition("/")[2])) is not None:
            file = pq.ParquetFile(io.BytesIO(data))
            assert file.metadata.metadata[KEY].decode() == name.incarnation
            lsns = file.read(["lsn"]).column("lsn").to_pylist()
            assert lsns == list(range(name.first, name.last + 1))
            found.setdefault(name.incarnation, []).extend(lsns)
    for lsns in found.values():
        assert len(set(lsns)) == len(lsns)
    return found


def incomplete(daemon: Daemon) -> str:
    """What the audit says, which finds that something is missing."""
    words = ("audit", "--config", daemon.config)
    done = run(sys.executable, "-m", "gateway.cli", *words)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "INCOMPLETE" in done.stdout
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    "way", ["killed", pytest.param("stopped", marks=pytest.mark.long)]
)
def test_a_disk_is_lost_and_nobody_gives_its_names_again(
    prepare, free_port, tmp_path, way
):
    """Somebody removes the newest objects, then the disk goes: what comes after it has
    other names, and of whoever stopped in good order is told what is missing, by number."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    with small_s3() as server:
        daemon, port = in_bucket(prepare, free_port, server.url, "50ms")
        with sending(port, ours, "--rate", "1000", "--window", "50") as sender:
            if way == "stopped":
                finish(sender)
            else:
                eventually(lambda: len(_ids(ours)) > 500, "acknowledgements")
        getattr(daemon, "kill" if way == "killed" else "terminate")()
        [before] = _words(server).values()
        assert before.exact is (way == "stopped")
        [given] = _lsns(server.objects).values()
        assert sorted(given) == list(range(1, len(given) + 1))
        names = sorted(name for name in server.objects if "/events-" in name)
        removed = {name: server.objects.pop(name) for name in names[-2:]}
        first = min(_lsns(removed)[before.incarnation])
        shutil.rmtree(daemon.data)
        daemon.start()
        with sending(port, theirs, "--rate", "1000", "--window", "50") as sender:
            finish(sender)
        daemon.terminate()
        now = _lsns({**server.objects, **removed})
        assert now.pop(before.incarnation) == given
        [new] = now.values()
        assert sorted(new) == list(range(1, 2001))
        assert len(_ids(theirs)) == 2000
        _age(server, before.incarnation)
        if way == "stopped":
            assert f"lsn {first}-{before.lsn}" in incomplete(daemon)
        server.objects |= removed
        assert "complete: " in audited(daemon, theirs)


def test_two_gateways_of_one_name(prepare):
    """Each is an incarnation; the second one waits for nobody, and stops nobody."""
    with small_s3() as server:
        settings: dict[str, Any] = {
            "spool": {"directory": "s3://gateway/spool", "s3": settings_of(server.url)}
        }
        first = prepare("first", **settings).start()
        second = prepare("second", **settings).start()
        assert len(_words(server)) == 2
        assert first.status()["ready"]
        assert second.status()["ready"]
        second.terminate()
        assert sorted(word.exact for word in _words(server).values()) == [False, True]


@pytest.mark.slow
def test_a_server_of_somebody_else(seaweed):
    """SeaweedFS: a name is made once, whoever races for it; what is new is listed."""
    bucket = bucket_at(seaweed.url, "a/b")
    probe(bucket, "gw")
    won: list[int] = []

    def race(number: int) -> None:
        with contextlib.suppress(AlreadyThere):
            bucket.create("race", b"%d" % number)
            won.append(number)

    threads = [threading.Thread(target=race, args=(n,)) for n in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert bucket.read("race") == b"%d" % won[0]
    assert len(won) == 1
    _, tag = bucket.read_tagged("race")
    swapped: list[int] = []

    def swap(number: int) -> None:
        with contextlib.suppress(Changed):
            bucket.swap("race", b"now %d" % number, tag)
            swapped.append(number)

    threads = [threading.Thread(target=swap, args=(n,)) for n in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert bucket.read("race") == b"now %d" % swapped[0]
    assert len(swapped) == 1
    with pytest.raises(Changed):
        bucket.swap("nothing", b"", tag)
    _, tag = bucket.read_tagged("race")
    for number in range(3):  # what a PUT answers is what the next one needs
        tag = bucket.swap("race", b"then %d" % number, tag)
        assert bucket.read_tagged("race") == (b"then %d" % number, tag)
    large = os.urandom(12 << 20)
    assert commit(bucket, "large", large) is True
    assert commit(bucket, "large", large) is False
    names = [file_name("gw", A, n, n) for n in range(1, 6)]
    for name in (*names, file_name("gw-1", A, 1, 1)):
        bucket.create(name, b"data")
    assert [one.name for one in objects_of(bucket, "gw")] == names
    bucket.remove("race")
    bucket.create("race", b"again")


@pytest.mark.slow
def test_a_bucket_with_versions_keeps_what_the_job_removes(seaweed, tmp_path):
    """With `spool.after: delete`: it is out of every list, a file of its name may be made
    again, and the version that went is there under its own name, for no copy."""
    keep_versions(seaweed)
    bucket, committed = bucket_at(seaweed.url), Ranges()
    probe(bucket, "gw")
    inbox = Inbox(
        *(bucket, tmp_path / "inbox", Lake(), lambda: Ledger(committed=committed)),
        archived=False,
        most_bytes=1 << 20,
    )
    inbox.copies.recover()
    names = [file_name("gw", A, n, n) for n in (1, 2)]
    made = [_versioned(bucket, name, name.encode()) for name in names]
    with pytest.raises(AlreadyThere):
        bucket.create(names[0], b"other")
    assert inbox.look() == 2
    committed.add(Life("gw", A), 1, 2)
    for name in names:
        (tmp_path / "inbox" / name).unlink()
    inbox.look()
    assert not objects_of(bucket, "gw")
    assert _versioned(bucket, names[0], None, made[0]) == names[0].encode()
    bucket.create(names[0], b"again")
    assert bucket.read(names[0]) == b"again"


def _versioned(bucket: Any, name: str, data: bytes | None, version: str = "") -> Any:
    """Make an object: its version; or what one is."""
    import obstore

    at = bucket._connected(bulk=True)
    if data is None:
        options: Any = {"version": version}
        return bytes(obstore.get(at, name, options=options).bytes())
    return obstore.put(at, name, data, mode="create", use_multipart=False)["version"]
