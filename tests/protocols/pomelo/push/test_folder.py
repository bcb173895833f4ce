"""The outbox directory: its files are taken once, and in the order of their names."""

import os
import shutil
import uuid
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gateway.protocols.pomelo.push.folder import Folder
from gateway.protocols.pomelo.push.row import Addressee, Push
from gateway.store.system.disk import RealDisk

ONE = Push("r", b"{}", Addressee(uid="a"))
LINE = b'{"route":"r","body":{},"uid":"a"}\n'


def taken(folder: Folder) -> tuple[str, list[Any]] | None:
    """The name and the rows of the next file."""
    file = folder.take()
    if file is None:
        return None
    rows: list[Any] = []
    while chunk := file.chunk():
        rows += chunk
    file.close()
    return file.name, rows


def test_files_in_the_order_of_their_names(folder, put):
    """Each is taken once and is gone."""
    paths = [put(name, LINE) for name in ("b.json", "a.ndjson", "c.jsonl")]
    names = [folder.take().name for _ in paths]  # type: ignore[union-attr]
    assert names == ["a.ndjson", "b.json", "c.jsonl"]
    assert folder.take() is None
    assert not any(path.exists() for path in paths)


def test_what_spark_leaves_beside(folder, put, tmp_path):
    """Files in its directory are taken; the directory goes when Spark is done."""
    put("run/part-0.json", LINE)
    put("run/.part-0.json.crc", b"x")
    put("run/._SUCCESS.crc", b"x")
    (tmp_path / "outbox" / "run" / "_temporary").mkdir()
    put("run/_temporary/part-1.json", b"half")
    assert taken(folder) == ("run/part-0.json", [ONE])
    assert folder.take() is None
    put("run/_temporary/part-1.json", b"half").unlink()
    (tmp_path / "outbox" / "run" / "_temporary").rmdir()
    put("run/_SUCCESS", b"")
    assert folder.take() is None
    assert not (tmp_path / "outbox" / "run").exists()


def test_many_files(folder, put, monkeypatch):
    """The directory is listed once for those that are there, and not for each of them."""
    for number in range(30):
        put(f"{number:02}.json", LINE)
        put(f"batch-{number:02}/part-0.json", LINE)
        put(f"batch-{number:02}/_SUCCESS", b"")
    listed: list[Any] = []

    def scandir(path: Any, real: Any = os.scandir) -> Any:
        listed.append(path)
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    names = [taken(folder)[0] for _ in range(60)]  # type: ignore[index]
    assert names == sorted(names)
    outbox = put("later.json", LINE).parent
    assert listed.count(outbox) == 1
    assert taken(folder) == ("later.json", [ONE])
    assert folder.take() is None
    assert not list(outbox.glob("batch-*"))


def test_a_directory_that_can_not_be_removed(folder, put):
    """… is left alone, and keeps none of the others waiting."""
    put("a/_SUCCESS/is-a-directory", b"")
    put("b/part-0.json", LINE)
    assert taken(folder) == ("b/part-0.json", [ONE])
    assert folder.take() is None


@pytest.mark.parametrize("gone", [".", ".done"])
def test_a_directory_that_somebody_removes(folder, open_folder, put, tmp_path, gone):
    """It is made again, and what was pushed is remembered, in the next life too."""
    put("a.json", LINE)
    assert taken(folder) == ("a.json", [ONE])
    shutil.rmtree(tmp_path / "outbox" / gone)
    assert folder.take() is None
    put("b.json", LINE)
    assert taken(folder) == ("b.json", [ONE])
    put("a.json", LINE)
    assert taken(open_folder()) is None


def test_hidden_names_are_not_there_yet(folder, put):
    """Until they are renamed."""
    path = put(".a.json", LINE)
    assert folder.take() is None
    path.rename(path.with_name("a.json"))
    assert folder.take() is not None


def test_a_streaming_sink_is_left_alone(folder, put):
    """Its files appear before they are complete."""
    path = put("sink/part-0.json", LINE)
    put("sink/_spark_metadata", b"")
    assert folder.take() is None
    assert path.exists()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.json", LINE + b"{"),
        ("a.json", b'{"route":"r"}'),
        ("a.json", b"\xff\xfe"),
        ("a.json", bytes((1 << 16) + 1)),
        ("a.parquet", b"PAR1 no"),
        ("a.csv", LINE),
    ],
)
def test_a_bad_file_is_set_aside(folder, put, name, content):
    """Whole, with nothing of it pushed; the next one follows."""
    path = put(name, content)
    put("b.json", LINE)
    assert taken(folder) == ("b.json", [ONE])
    bad = path.with_name(f".bad-{name}")
    assert bad.read_bytes() == content
    assert bad.with_name(f"{bad.name}.reason").read_text().strip()
    assert folder.set_aside == 1
    assert folder.trouble is None, "the next one was taken"


def test_a_bad_file_is_told_until_a_good_one_comes(folder, put):
    """As the gateway's trouble: whoever writes them may write no other any more."""
    put("a.csv", LINE)
    assert folder.take() is None
    assert "a.csv, was set aside" in str(folder.trouble)
    put("b.json", LINE)
    assert taken(folder) == ("b.json", [ONE])
    assert folder.trouble is None


def test_parquet_without_its_columns(folder, tmp_path):
    """… is a bad file."""
    pq.write_table(pa.table({"route": ["r"]}), tmp_path / "outbox" / "a.parquet")
    assert folder.take() is None
    assert (tmp_path / "outbox" / ".bad-a.parquet").exists()


def test_odd_columns_do_not_matter(folder, tmp_path):
    """A timestamp that Python has no object for, in a column that nobody asked for."""
    rows = {"route": ["r"], "body": ["{}"], "uid": ["a"]}
    odd = pa.array([2**62], pa.timestamp("us", "nowhere/nowhere"))
    pq.write_table(pa.table(rows | {"at": odd}), tmp_path / "outbox" / "a.parquet")
    assert taken(folder) == ("a.parquet", [ONE])


def test_what_arrow_can_not_say_in_python(folder, put, tmp_path):
    """… inside a body: the file is set aside, the next one is taken."""
    odd = pa.array([2**62], pa.timestamp("us"))
    body = pa.StructArray.from_arrays([odd], ["at"])
    table = pa.table({"route": ["r"], "body": body, "uid": ["a"]})
    pq.write_table(table, tmp_path / "outbox" / "a.parquet")
    latin = pa.array([b"\xff"]).cast(pa.string(), safe=False)
    table = pa.table({"route": latin, "body": ["{}"], "uid": ["a"]})
    pq.write_table(table, tmp_path / "outbox" / "b.parquet")
    put("c.json", LINE)
    assert taken(folder) == ("c.json", [ONE])
    assert folder.set_aside == 2


def test_a_small_file_of_many_rows(folder, tmp_path):
    """No chunk of it is large, though its rows are the same long body again and again."""
    rows, body = 3000, '{"a":"' + "x" * 50_000 + '"}'
    columns = {"route": ["r"] * rows, "body": [body] * rows, "uid": ["a"] * rows}
    path = tmp_path / "outbox" / "a.parquet"
    pq.write_table(pa.table(columns), path, compression="zstd")
    assert path.stat().st_size < 1 << 16
    file = folder.take()
    assert file is not None
    sizes = []
    while chunk := file.chunk():
        sizes.append((len(chunk), sum(row.size for row in chunk)))
    file.close()
    assert sum(count for count, _ in sizes) == rows
    assert max(size for _, size in sizes) < (1 << 20) + len(body)


def test_a_long_name(folder, put):
    """Names of 236 to 255 bytes are taken, and set aside, like any other."""
    for size in (236, 255):
        put("a" * (size - 5) + ".json", LINE)
        put("b" * (size - 5) + ".json", b"no")
    names = {found[0] for _ in range(2) if (found := taken(folder)) is not None}
    assert {len(name) for name in names} == {236, 255}
    assert taken(folder) is None
    assert folder.set_aside == 2


def test_only_regular_files_are_touched(folder, put, tmp_path):
    """A FIFO, a link and a directory too deep are set aside; what they mean stays."""
    outbox, elsewhere = tmp_path / "outbox", tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "x.json").write_bytes(LINE)
    os.mkfifo(outbox / "a.json")
    (outbox / "b.json").symlink_to(elsewhere / "x.json")
    (outbox / "c").symlink_to(elsewhere)
    (outbox / "d" / "deep.json").mkdir(parents=True)
    (outbox / "e.json").symlink_to("/dev/zero")
    put("f.json", LINE)
    assert taken(folder) == ("f.json", [ONE])
    assert taken(folder) is None
    assert folder.set_aside == 5
    assert [path.name for path in elsewhere.iterdir()] == ["x.json"]
    bad = {path.name for path in outbox.iterdir() if path.name.endswith(".reason")}
    assert bad == {
        f".bad-{name}.reason" for name in ("a.json", "b.json", "c", "e.json")
    }


def test_what_can_not_even_be_set_aside(folder, put, tmp_path):
    """… is said once, and does not stand in the way of others."""
    put("a.json", b"no")
    (tmp_path / "outbox" / ".bad-a.json").mkdir()
    put("b.json", LINE)
    assert taken(folder) == ("b.json", [ONE])
    assert taken(folder) is None
    assert folder.set_aside == 1
    put("c.json", LINE)
    assert taken(folder) == ("c.json", [ONE])


def test_a_name_that_is_not_utf8(folder, tmp_path):
    """It can be logged."""
    (tmp_path / "outbox" / os.fsdecode(b"\xff.json")).write_bytes(LINE)
    assert taken(folder) == ("\\udcff.json", [ONE])


def test_what_was_pushed_is_kept_if_wanted(open_folder, put, tmp_path, monkeypatch):
    """For `retention`; then it goes.  It may be another user's, whose times are not ours."""
    folder = open_folder(retention=60.0)
    os.utime(put("a.json", LINE), (1, 1))
    monkeypatch.setattr(os, "utime", Mock(side_effect=PermissionError))
    assert taken(folder) == ("a.json", [ONE])
    folder.sweep()
    [kept] = (tmp_path / "outbox" / ".done").iterdir()
    assert kept.read_bytes() == LINE
    kept.rename(kept.with_name("1-a.json"))
    folder.sweep()
    assert list((tmp_path / "outbox" / ".done").iterdir()) == []


# Once


def test_a_file_that_is_written_again(folder, open_folder, put):
    """… is not taken again, in this life or the next one; others are."""
    put("a.json", LINE)
    assert taken(folder) == ("a.json", [ONE])
    for again in (folder, open_folder()):
        path = put("a.json", LINE)
        assert taken(again) is None
        assert not path.exists()
        assert again.repeated == 1
    put("b.json", LINE)
    assert taken(again) == ("b.json", [ONE])


def test_a_batch_that_spark_writes_again(folder, put):
    """Its parts have another UUID in their names, and are known all the same."""
    first, second = str(uuid.uuid4()), str(uuid.uuid4())
    for part in ("00000", "00001"):
        put(f"batch-7/part-{part}-{first}-c000.json", LINE)
        assert taken(folder) is not None
    put(f"batch-7/part-00000-{second}-c000.json", LINE)
    put(f"batch-7/part-00001-{second}-c000.json", LINE)
    put("batch-7/_SUCCESS", b"")
    assert taken(folder) is None
    assert folder.repeated == 2
    put(f"batch-8/part-00000-{second}-c000.json", LINE)
    assert taken(folder) is not None


def test_parts_that_lie_in_the_outbox_itself(folder, put):
    """… have no batch's name: the UUID is all that tells them apart."""
    for _ in range(2):
        put(f"part-00000-{uuid.uuid4()}-c000.json", LINE)
        assert taken(folder) is not None
    assert folder.repeated == 0


def test_names_are_forgotten_in_time(open_folder, put):
    """After `remember`; 0 remembers none."""
    folder = open_folder(remember=0.0)
    for _ in range(2):
        put("a.json", LINE)
        assert taken(folder) is not None


class Stop(BaseException):
    """kill -9."""


class Steps(RealDisk):
    """A disk whose every step may be the last, or may fail."""

    def __init__(self, left: int, error: type[BaseException] = Stop) -> None:
        self.left = left
        self._error = error

    def step(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise self._error(28, "no room")

    def rename(self, old: Path, new: Path) -> None:
        self.step()
        super().rename(old, new)
        self.step()

    def sync_directory(self, path: Path) -> None:
        self.step()
        super().sync_directory(path)

    def create(self, path: Path) -> Any:
        return StepFile(self, super().create(path))


class StepFile:
    """A file on it."""

    def __init__(self, disk: Steps, file: Any) -> None:
        self._disk = disk
        self._file = file
        self.close = file.close

    def write(self, chunks: list[bytes]) -> None:
        self._disk.step()
        self._file.write([b"".join(chunks)[:-3]])
        self._disk.step()
        self._file.write([b"".join(chunks)[-3:]])

    def sync(self) -> None:
        self._disk.step()
        self._file.sync()


def test_killed_between_any_two_steps(open_folder, put):
    """Nothing is taken twice, though the job writes it again; one file may be lost."""
    for last in range(1, 60):
        names = (f"{last}.json", f"{last}-next.json")
        for name in names:
            put(name, LINE)
        pushed: list[str] = []
        disk = Steps(last)
        try:
            folder = open_folder(disk)
            while (found := taken(folder)) is not None:
                pushed.append(found[0])
        except Stop:
            pass
        folder = open_folder()
        for _ in range(2):
            while (found := taken(folder)) is not None:
                pushed.append(found[0])
            for name in names:
                put(name, LINE)
        while (found := taken(folder)) is not None:
            pushed.append(found[0])
        assert sorted(pushed) == sorted(set(pushed)), f"twice, after step {last}"
        assert len(pushed) >= len(names) - 1, f"never, after step {last}"
        if disk.left > 0:
            return
    raise AssertionError("there is no end of steps")


def test_a_name_that_can_not_be_noted(open_folder, put, logged):
    """Its file stays where it is until it can be, and is taken then."""
    disk = Steps(0)
    folder = open_folder(disk)
    path = put("a.json", LINE)
    disk._error = OSError
    disk.left = 6  # behind rename and syncs
    assert taken(folder) is None
    disk.left = 6
    assert taken(folder) is None
    assert path.exists()
    assert folder.set_aside == 0
    disk.left = 0
    assert taken(folder) == ("a.json", [ONE])
    told = [event["log_format"] for event in logged if "outbox" in event["log_format"]]
    assert ["can not be noted" in told[0], "pushed again" in told[1]] == [True, True]
    assert len(told) == 2
