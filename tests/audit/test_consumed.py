"""Where no job of ours takes files (`spool.after: keep`), the proof asks the archive, or the
bucket, and what consumers have read of it.
"""

from pathlib import Path

import pytest

from catalogs import expire, write
from gateway.audit.report import Report
from gateway.cli import main
from gateway.store.directories import Directories
from gateway.store.lsns import Lsns
from gateway.store.node.expired import Expired
from gateway.store.node.incarnation import Incarnation
from gateway.store.objects.bucket import Bucket
from gateway.store.readers.consumers import Marks, marks_at
from gateway.store.readers.lake import accepted
from gateway.store.system.disk import RealDisk
from gateway_testkit.bucket import MemoryBucket
from incarnations import A, B
from spools import SpoolFolder

from .accounts import configured, look


class Kept:
    """What a gateway has published, and nobody but consumers takes."""

    def __init__(self, root: Path, bucket: Bucket | None = None) -> None:
        self.places = Directories.under(root)
        self.bucket = bucket
        self.files = SpoolFolder(self.places.archive)
        for folder in (self.places.journal, self.places.spool, self.places.archive):
            folder.mkdir(parents=True)

    def add(self, first: int, count: int, by: str = A) -> Path:
        path = self.files.events("gw", first, count, incarnation=by)
        if self.bucket is not None:
            self.bucket.create(path.name, path.read_bytes())
            path.unlink()
        return path

    def go(self, path: Path) -> None:
        """As it expires."""
        if self.bucket is not None:
            self.bucket.remove(path.name)
            return
        expire(self.places.root, [path.name])
        path.unlink()

    @property
    def marks(self) -> Marks:
        return marks_at(self.bucket, self.places.consumers, RealDisk(), "mine")

    def report(self) -> Report:
        return look(self.places.root, self.bucket, keeps=True)


@pytest.fixture(params=["archive", "bucket"])
def kept(request, tmp_path) -> Kept:
    return Kept(tmp_path, MemoryBucket() if request.param == "bucket" else None)


def test_what_is_there_and_what_was_read(kept):
    """Together it is all; what is neither there nor read is missing."""
    paths = [kept.add(first, 10) for first in (1, 11, 21)]
    report = kept.report()
    assert (report.complete, report.events, report.count("read")) == (True, 30, 0)
    names = [path.name for path in paths[:2]]
    kept.marks.change(lambda mark: mark.with_worked(0, names))
    for path in paths[:2]:
        kept.go(path)
    report = kept.report()
    assert (report.complete, report.events, report.count("read")) == (True, 30, 20)
    if kept.bucket is not None:
        kept.bucket.remove(paths[2].name)
    else:
        paths[2].unlink()
    kept.add(31, 1)
    [node] = kept.report().nodes
    assert list(node.holes) == [(21, 30)]


def test_what_was_read_of_another_life_proves_nothing(kept):
    """A rebuilt machine gives its lsns again: these are other events, and they are gone."""
    before, lost = kept.add(1, 10), kept.add(11, 5)
    kept.marks.change(lambda mark: mark.with_done([before.name, lost.name]))
    kept.go(before)
    kept.go(lost)
    kept.add(1, 3, by=B)
    new = kept.add(4, 4, by=B)
    kept.add(8, 1, by=B)
    report = kept.report()
    assert all(node.fine for node in report.nodes), report
    (kept.places.archive / new.name).unlink(missing_ok=True)
    if kept.bucket is not None:
        kept.bucket.remove(new.name)
    [node] = kept.report().nodes
    assert [
        (life.incarnation, list(life.holes)) for life in node.lives if life.holes
    ] == [(B, [(4, 7)])]


def test_a_life_of_which_nothing_is_left_is_asked_for(kept):
    """What was read of it says that it was there, and what was not is missing; so it is
    where nothing of the node is left."""
    paths = [kept.add(first, 10) for first in (1, 11, 21)]
    read = [path.name for path in (paths[0], paths[2])]
    kept.marks.change(lambda mark: mark.with_done(read))
    for path in (paths[0], paths[2]):
        kept.go(path)
    if kept.bucket is not None:
        kept.bucket.remove(paths[1].name)
    else:
        (kept.places.journal_of("gw") / "catalog").unlink()
        paths[1].unlink()

    def check() -> None:
        report = kept.report()
        assert report.count("read") == 20
        lives = [life for one in report.nodes for life in one.lives]
        holes = {life.incarnation: list(life.holes) for life in lives if life.holes}
        assert holes == {A: [(11, 20)]}

    check()
    kept.add(1, 5, by=B)
    check()


def test_what_has_left_of_one_whose_line_was_folded(tmp_path):
    """Its lsns are in the line of the one that goes on from it, in the same directory: so
    they count, and none of another directory's."""
    kept = Kept(tmp_path)
    kept.add(11, 5, by=B)
    journal = kept.places.journal_of("gw")
    write(journal, Expired(f"gw_{B}", Lsns([(1, 10)])))
    write(journal, Incarnation(B, 11, 0, (A,), begins=(1,)))
    kept.places.state_of("gw").mkdir(parents=True)
    assert kept.report().count("expired") == 10
    # A file of it that came back has left since.
    write(journal, Expired(f"gw_{A}", Lsns([(10, 10)])))
    assert kept.report().count("expired") == 10
    kept.add(4, 1, by="z" * 10)
    assert [
        life.incarnation for life in kept.report().nodes[0].lives if life.holes
    ] == ["z" * 10]


def test_what_has_left_the_archive_is_told(tmp_path, capsys):
    """Its time was over, and no mark says who has read it: so the command says, which knows
    from the configuration that there is no job."""
    kept = Kept(tmp_path)
    first, second = kept.add(1, 10), kept.add(11, 10)
    kept.add(21, 10)
    kept.marks.change(lambda mark: mark.with_done([second.name]))
    kept.go(first)
    kept.go(second)
    yaml = tmp_path / "gateway.yaml"
    file = configured(yaml, tmp_path, after="keep", consumers=["mine"])
    ids = tmp_path / "ids"
    ids.write_text("nowhere\n")
    assert main(["audit", "--config", str(file)]) == 0
    assert (
        "complete: 10 events, each exactly once; 10 read by consumers, and removed;"
        " 10 events expired by retention"
    ) in capsys.readouterr().out
    configured(yaml, tmp_path)
    assert main(["audit", "--config", str(file)]) == 1


def test_what_is_lost_can_be_accepted_where_there_is_no_job(tmp_path, capsys):
    """It is kept beside the archive; with a job's tables, where that one finds it."""
    kept = Kept(tmp_path / "data")
    lost = kept.add(1, 10)
    kept.add(11, 10)
    lost.unlink()
    (tmp_path / "job" / "lake").mkdir(parents=True)
    words = []
    for name, spool in (("data", {"after": "keep"}), ("job", {})):
        file = configured(tmp_path / f"{name}.yaml", tmp_path / name, **spool)
        words += ["--config", str(file)]
    assert main(["audit", *words[:2]]) == 1
    accept = ["audit", "accept", "gw", "--reason"]
    assert main([*accept, "case 1", "1-5", *words[:2]]) == 0
    assert main([*accept, "case 2", "6-10", *words]) == 0
    [one] = accepted(tmp_path / "job" / "lake")
    assert (one.first, one.reason) == (6, "case 2")
    assert main(["audit", *words]) == 0
    assert "10 accepted as lost (case 1; case 2)" in capsys.readouterr().out


def test_a_file_on_its_way_to_the_archive_is_asked_for(tmp_path):
    """As those in it, under whose lsns it may have other events of a later life."""
    kept = Kept(tmp_path)
    kept.add(1, 10)
    SpoolFolder(kept.places.spool).events("gw", 1, 10, incarnation=B)
    report = kept.report()
    assert (report.nodes[0].fine, report.events) == (True, 20)


def test_a_damaged_mark_is_told(tmp_path):
    """What was read is not known then."""
    kept = Kept(tmp_path)
    kept.add(1, 10)
    kept.places.consumers.mkdir()
    (kept.places.consumers / "mine").write_bytes(b"00000000 {}\n")
    [problem] = kept.report().problems
    assert "mine is damaged" in problem.why
