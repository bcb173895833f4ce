"""The doctor looks at what lies in the data directory, and changes none of it."""

import hashlib
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import google_crc32c
import pytest

from gateway.config import Config
from gateway.doctor import damage, examine, leftovers
from gateway.doctor.look import Look
from gateway.plugins import Installed
from gateway.sdk.protocol import Protocol
from gateway.store.journal import segment
from gateway.store.node.mark import Mark, Marker
from gateway.store.opening import Opened
from gateway.store.system.disk import RealDisk
from gateway.store.system.lock import lock_directory

from .conftest import publish, states, store, the

Start = Callable[..., Opened]


def snapshot(root: Path) -> dict[str, tuple[str, int]]:
    """All that is there: bytes and times."""
    return {
        str(path.relative_to(root)): (
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
            path.stat().st_mtime_ns if path.is_file() else 0,
        )
        for path in sorted(root.rglob("*"))
    }


@pytest.fixture
def data(tmp_path, start) -> Path:
    """A node with two files, one archived, and two segments."""
    opened = start()
    path = publish(opened, b"a,b", b"c")
    path.rename(tmp_path / "data/archive" / path.name)
    publish(opened, b"d")
    store(opened, b"e,f", b"g,h")
    store(opened, b"i")
    root = tmp_path / "data"
    Marker(root / "state/gw-1", RealDisk()).write(Mark(9, 9, 4), now=True)
    return root


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(bytes(content))


def one(config: Config, what: str) -> Look:
    return the(damage.examine(config), what)


def segments(data: Path) -> list[Path]:
    return sorted((data / "journal/gw-1").glob("*.journal"))


def test_nothing_is_damaged_and_nothing_changed(make, data):
    """All looks together leave each byte and time as it was."""
    before = snapshot(data)
    found = list(examine(make()))
    assert {look.what for look in found if look.state == "fail"} <= {"Java", "Spark"}
    assert snapshot(data) == before
    assert states(damage.examine(make())) == {"ok"}


def test_a_look_that_can_not_be_made_has_failed(make, data, monkeypatch):
    def refuse(path: Path) -> list[str]:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(damage, "list_names", refuse)
    found = list(examine(make()))
    assert found[-1].state == "fail"
    assert found[-1].what == "damage"
    assert "as the user of the daemon" in found[-1].advice
    assert the(found, "journals").state == "ok"


# -- damage ----------------------------------------------------------------------------------


def test_a_damaged_record(make, data):
    """By its lsns; the segment behind it is fine."""
    path = segments(data)[0]
    content = path.read_bytes()
    flip(path, content.index(b"e,f"))
    look = one(make(), "journal segments")
    assert look.state == "fail"
    assert f"{path}: " in look.detail
    assert "lsn 5 to 6" in look.detail
    assert "gateway audit" in look.advice


def test_a_damaged_header_and_another_format(make, data):
    """The one is served without what is lost, the other is for another version."""
    path = segments(data)[0]
    content = path.read_bytes()
    flip(path, 3)
    look = one(make(), "journal segments")
    assert look.state == "fail"
    assert "not a journal segment" in look.detail
    assert "names what is lost" in look.advice
    path.write_bytes(segment.Header(1, 0, 7).encode() + content[segment.HEADER_BYTES :])
    look = one(make(), "journal segments")
    assert look.state == "fail"
    assert "a segment that begins with lsn 1" in look.detail
    head = content[:8] + b"\x63\x00" + content[10 : segment.HEADER_BYTES - 4]
    (salt,) = struct.unpack_from("<I", content, 12)
    crc = struct.pack("<I", google_crc32c.extend(salt, head))
    path.write_bytes(head + crc + content[segment.HEADER_BYTES :])
    look = one(make(), "journal segments")
    assert look.state == "fail"
    assert look.advice == "start the version that wrote it"


def test_a_place_of_lost_events(make, data):
    """It has no damaged bytes, and says which lsns are lost."""
    segments(data)[0].write_bytes(segment.place_of_lost(5, 8))
    look = one(make(), "journal segments")
    assert look.state == "fail"
    assert "missing from byte 36 on, lsn 5 to 8" in look.detail


@pytest.mark.parametrize("of_seal", [True, False])
def test_an_end_that_only_the_mark_knows(make, data, *, of_seal):
    """Of the newest segment: acknowledged events, or bytes behind them that were synced."""
    path = segments(data)[-1]
    content = path.read_bytes()
    path.write_bytes(content[:-8] if of_seal else content[: segment.HEADER_BYTES + 1])
    synced = len(content) if of_seal else 0
    newest = Mark(9, 9, 4, segment=path.name, synced=synced)
    Marker(data / "state/gw-1", RealDisk()).write(newest, now=True)
    look = one(make(), "journal segments")
    assert look.state == "fail"
    assert f"{path}: " in look.detail
    assert look.detail.endswith(", lsn 10" if of_seal else ", lsn 9")
    assert "names what is lost" in look.advice


def test_batches_of_a_protocol_that_is_not_installed(make, data, monkeypatch):
    """The next start would be refused for them: it is told before."""
    without = Installed({"relp": Protocol()}, {})
    monkeypatch.setattr(damage, "installed", lambda: without)
    looks = [one for one in damage.examine(make()) if one.state == "fail"]
    assert [look.what for look in looks] == ["journal segments"] * 2
    assert "protocol 'lumberjack', which is not installed" in looks[0].detail
    assert "install the package that brings it" in looks[0].advice


def test_a_segment_that_was_set_aside(make, data):
    path = segments(data)[0]
    path.rename(path.with_name(path.name + ".damaged"))
    look = one(make(), "journal segments")
    assert look.state == "warn"
    assert "found damaged earlier" in look.detail


@pytest.mark.parametrize("line", [0, 1])
def test_a_damaged_line_of_the_catalog(make, data, line):
    """The next start mends it."""
    path = data / "journal/gw-1/catalog"
    flip(path, sum(map(len, path.read_bytes().splitlines(keepends=True)[:line])) + 20)
    look = one(make(), "catalog")
    assert look.state == "warn"
    assert f"line {line + 1} damaged" in look.detail
    assert "repairs" in look.advice


def test_a_catalog_that_nobody_can_mend(make, data):
    """The daemon would not start, and the doctor says why and what to do."""
    path = data / "journal/gw-1/catalog"
    content = path.read_bytes()
    flip(path, 20)
    flip(path, len(content) - 20)
    for name in ("spool", "archive", "state"):
        shutil.rmtree(data / name)
    look = one(make(), "catalog")
    assert look.state == "fail"
    assert "put back a copy" in look.detail


@pytest.mark.parametrize("where", ["spool", "archive"])
@pytest.mark.parametrize("how", ["empty", "cut"])
def test_a_damaged_spool_file(make, data, where, how):
    """By its footer, and the number of its events."""
    [path] = (data / where).iterdir()
    path.write_bytes(b"" if how == "empty" else path.read_bytes()[:-9])
    look = one(make(), "spool files")
    assert look.state == "fail"
    assert f"{path}: " in look.detail
    assert ("poison/" in look.advice) == (where == "spool")


@pytest.mark.parametrize(
    ("where", "spool", "advice"),
    [
        ("archive", "{after: keep}", "nobody else has its events"),
        ("spool", "{after: keep}", "nobody else has its events"),
        ("archive", "{after: forward}", "its events are at the hub"),
        ("spool", "{after: forward}", "it is moved to poison/"),
        ("archive", "{directory: s3://bucket/p}", "its events are in the bucket"),
        ("spool", "{directory: s3://bucket/p}", "nobody else has its events"),
    ],
)
def test_a_damaged_file_where_no_job_is(make, data, where, spool, advice):
    """Who else has its events, if anybody has: there are no tables here."""
    [path] = (data / where).iterdir()
    path.write_bytes(b"")
    more = {"forward": "{to: http://h:1}"} if "forward" in spool else {}
    assert one(make(spool=spool, **more), "spool files").advice.startswith(advice)


def test_a_spool_file_with_too_few_events(make, data):
    """And a name that is none of ours."""
    [path] = (data / "archive").iterdir()
    path.rename(path.with_name(path.name.replace("3.parquet", "5.parquet")))
    look = one(make(), "spool files")
    assert "it has 3 events, its name says 5" in look.detail
    for name in (data / "archive").iterdir():
        name.unlink()
    (data / "spool/events-of-mine.parquet").touch()
    look = one(make(), "spool files")
    assert (look.state, "not the gateway's" in look.detail) == ("warn", True)


def test_damaged_small_files(make, data):
    """The mark; a state file stops the start."""
    state = data / "state/gw-1"
    flip(state / "mark", 12)
    look = one(make(), "state")
    assert (look.state, look.advice) == ("warn", "the daemon writes it anew")
    (state / "mark").unlink()
    assert one(make(), "state").state == "ok"
    (state / "plain.state").write_bytes(b"gwstate\n")
    look = one(make(), "state")
    assert look.state == "fail"
    assert "move it away" in look.detail


def test_a_disk_that_does_not_give_back(make, data, monkeypatch):
    """EIO, wherever it comes."""

    def read_bytes(path: Path) -> bytes:
        raise OSError(5, "Input/output error", str(path))

    config = make()
    monkeypatch.setattr(Path, "read_bytes", read_bytes)
    found = list(damage.examine(config))
    for what in ("catalog", "journal segments"):
        looks = [look for look in found if look.what == what]
        assert {look.state for look in looks} == {"fail"}
        assert all("dmesg" in look.advice for look in looks)


def test_many_damaged_files_are_counted(make, data, monkeypatch):
    monkeypatch.setattr(damage, "_SHOWN", 2)
    for number in range(5):
        (data / f"spool/events-mine-{number}.parquet").touch()
    looks = [look for look in damage.examine(make()) if look.what == "spool files"]
    assert len(looks) == 3
    assert "3 more" in looks[-1].detail


# -- leftovers -------------------------------------------------------------------------------


def test_a_renamed_node(make, data):
    """What it left is published at the next start, and the name is to be kept."""
    look = the(leftovers.examine(make(node="gw-2")), "journals")
    assert look.state == "warn"
    assert "node gw-1 left 5 acknowledged events" in look.detail
    assert "set node: gw-1" in look.advice


def test_a_journal_that_nobody_will_publish(make, data):
    """Without state of ours it is another machine's, and its gateway does not run."""
    shutil.rmtree(data / "state/gw-1")
    config = make(node="gw-2")
    look = the(leftovers.examine(config), "journals")
    assert look.state == "fail"
    assert "start the gateway of node gw-1" in look.advice
    held = lock_directory(data / "journal/gw-1")
    assert the(leftovers.examine(config), "journals").state == "ok"
    held.release()


def test_a_journal_with_nothing_to_publish(make, start, tmp_path):
    """Only what the node remembered is not served."""
    opened = start(remembering=True)
    publish(opened, b"a")
    look = the(leftovers.examine(make(node="gw-2")), "journals")
    assert look.state == "warn"
    assert "left 0 acknowledged events" in look.detail
