"""The nodes of a job: found by their files, drained, and forgotten."""

import json
from argparse import ArgumentParser
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import yaml

from gateway.cli import spark as command
from gateway.sdk.command import WrongUse
from gateway.spark.commit.ledger import Hole, Ledger, Ranges
from gateway.spark.run.nodes import NotDrained, Unknown, forget, states
from gateway.store.names import file_name
from gateway.store.objects import s3
from gateway.store.objects.node_record import SILENT_SECONDS, NodeRecord, name_of
from gateway_testkit.bucket import MemoryBucket
from incarnations import A, B


@pytest.fixture
def bucket() -> MemoryBucket:
    """gw-1 has one file in the tables and two that wait; gw-2 left its newest."""
    bucket = MemoryBucket()
    for node, first, last in (
        ("gw-1", 1, 9), ("gw-1", 10, 19), ("gw-1", 20, 22), ("gw-2", 1, 5),
    ):  # fmt: skip
        bucket.objects[file_name(node, A, first, last)] = b"data"
    return bucket


LEDGER = Ledger(committed=Ranges({"gw-1": {A: [(1, 9)]}, "gw-2": {A: [(1, 5)]}}))


def say(
    bucket: MemoryBucket,
    node: str,
    by: str = A,
    *,
    ago: float = 0.0,
    exact: bool = False,
) -> str:
    """The name of a word that an incarnation has written so many seconds ago."""
    name = name_of(node, by)
    said = NodeRecord(by, 1, 5, 1.0, "journal", exact)
    bucket.replace(name, msgspec.json.encode(said))
    bucket.written[name] -= ago
    return name


def test_nodes_are_found_by_their_files(bucket):
    """How far each is, what waits, and who serves it: nobody has to name them."""
    say(bucket, "gw-1", "0" * 10, ago=2 * SILENT_SECONDS)
    say(bucket, "gw-1", B)
    say(bucket, "gw-1", "z" * 10, exact=True)
    first, second = states(bucket, LEDGER)
    assert (first.node, first.in_tables) == ("gw-1", 9)
    assert (first.files, first.events) == (2, 13)
    assert first.served_by == B
    assert first.oldest is not None
    assert (second.node, second.files, second.events) == ("gw-2", 0, 0)
    assert second.served_by is second.oldest is None


def test_what_is_in_no_table_and_no_file_is_counted(bucket, run):
    """While later ones are there: somebody has taken it."""
    assert [one.lacking for one in states(bucket, LEDGER)] == [0, 0]
    del bucket.objects[file_name("gw-1", A, 10, 19)]
    assert states(bucket, LEDGER)[0].lacking == 10
    assert "10 events are in no table and not in the bucket" in run("nodes")[1]


def test_what_was_moved_aside_does_not_wait(bucket):
    """It is written down, and comes back by requeue."""
    name = file_name("gw-1", A, 10, 19)
    noted = LEDGER.with_hole(Hole("gw-1", 10, 19, name, "damaged", 1.0))
    assert states(bucket, noted)[0].events == 3


def test_a_node_that_left_is_forgotten(bucket):
    """What is left of its files goes; what its incarnations said of themselves stays, by
    which the audit knows what they had acknowledged; another node is untouched."""
    before = {name for name in bucket.objects if "gw-1" in name} | {say(bucket, "gw-1")}
    said = {
        say(bucket, "gw-2", ago=2 * SILENT_SECONDS),
        say(bucket, "gw-2", B, exact=True),
    }
    assert forget(bucket, LEDGER, "gw-2", archived=True) == 5
    name = file_name("gw-2", A, 1, 5)
    assert bucket.objects.keys() == before | said | {f"_archive/{name}"}
    assert forget(bucket, LEDGER, "gw-2", archived=True) == 5


def test_a_node_is_drained_first(bucket):
    """What is in no table, or still read by the job, is not forgotten."""
    before = dict(bucket.objects)
    with pytest.raises(NotDrained, match="2 files of node gw-1 with 13 events"):
        forget(bucket, LEDGER, "gw-1", archived=True)
    inbox = [file_name("gw-2", A, 1, 5)]
    with pytest.raises(NotDrained, match="gw-2"):
        forget(bucket, LEDGER, "gw-2", inbox=inbox, archived=True)
    assert bucket.objects == before


def test_a_node_that_runs_is_not_forgotten(bucket):
    """It has said something of itself lately; nothing of it is touched."""
    say(bucket, "gw-2", B, ago=SILENT_SECONDS - 60)
    before = dict(bucket.objects)
    with pytest.raises(NotDrained, match=f"incarnation {B} has said so"):
        forget(bucket, LEDGER, "gw-2", archived=True)
    assert bucket.objects == before


def test_nobody_is_forgotten_by_mistake(bucket):
    """A name that was never met."""
    before = dict(bucket.objects)
    with pytest.raises(Unknown, match=r"gw-3.*gw-1, gw-2"):
        forget(bucket, LEDGER, "gw-3", archived=True)
    assert bucket.objects == before


# -- the commands ------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path, bucket, monkeypatch, capsys) -> Callable[..., tuple[int, str]]:
    """`gateway spark …` beside a job that has a bucket, unless *spool* is another."""
    monkeypatch.setattr(s3, "bucket_of", lambda spool, *_: spool.bucket and bucket)
    data = tmp_path / "data"
    (data / "lake" / ".gateway").mkdir(parents=True)
    (data / "lake" / ".gateway" / "events.json").write_text(LEDGER.text())
    listener = {"name": "a", "protocol": "lumberjack", "listen": "tcp:127.0.0.1:0"}

    def run(*words: str, spool: str = "s3://bucket/prefix") -> tuple[int, str]:
        content: dict[str, Any] = {
            "node": "job",
            "data_dir": str(data),
            "listeners": [listener],
            "spool": {"directory": spool},
        }
        path = tmp_path / "job.yaml"
        path.write_text(yaml.safe_dump(content))
        parser = ArgumentParser()
        command.add_arguments(parser)
        status = command.run(parser.parse_args([*words, "--config", str(path)]))
        return status, capsys.readouterr().out

    return run


def test_the_command_names_all_nodes(run):
    """A line each, for people or programs."""
    status, text = run("nodes")
    assert status == 0
    assert "gw-1: lsn 9 in the tables; 13 events in 2 files wait" in text
    assert "gw-2: lsn 5 in the tables; nothing waits; none runs" in text
    lines = [json.loads(line) for line in run("nodes", "--json")[1].splitlines()]
    assert [one["node"] for one in lines] == ["gw-1", "gw-2"]


def test_the_command_forgets(run):
    """With a status that says whether it did."""
    status, text = run("forget", "gw-1")
    assert status == 1
    assert "let gateway spark run" in text
    status, text = run("forget", "gw-2")
    assert status == 0
    assert text.endswith("up to lsn 5, are in the tables\n")
    assert run("forget", "gw-2")[0] == 0


def test_the_command_says_what_is_in_no_table(tmp_path, run):
    """What was moved aside stays there, whoever is forgotten."""
    noted = LEDGER
    for node, first, last in (("gw-1", 10, 19), ("gw-1", 20, 22), ("gw-2", 6, 7)):
        name = file_name(node, A, first, last)
        noted = noted.with_hole(Hole(node, first, last, name, "damaged", 1.0))
    ledger = tmp_path / "data" / "lake" / ".gateway" / "events.json"
    ledger.write_text(noted.text())
    status, text = run("forget", "gw-1")
    assert status == 0
    assert "up to lsn 22, are in the tables, but for 13 in 2 files" in text
    assert file_name("gw-1", A, 10, 19) in text
    assert str(tmp_path / "data" / "poison") in text
    assert json.loads(run("forget", "gw-2", "--json")[1])["aside"] == 2


@pytest.mark.parametrize(
    ("words", "more", "why"),
    [
        (["forget"], {}, "NODE"),
        (["nodes", "gw-1"], {}, "NODE"),
        (["forget", "gw-3"], {}, "no node gw-3"),
        (["nodes"], {"spool": "spool"}, "no bucket"),
    ],
)
def test_wrong_use_is_told(run, words, more, why):
    with pytest.raises(WrongUse, match=why):
        run(*words, **more)
