"""Deletions that are ordered while a job runs, without one."""

import argparse
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import NumberFormatException, SparkRuntimeException

from gateway.cli import spark
from gateway.sdk.command import WrongUse
from gateway.spark.commit.lakedisk import Lake
from gateway.spark.later.deletion import Asked
from gateway.spark.run import orders
from gateway.spark.run.orders import Order
from gateway.store.system.lock import lock

ASKED = Asked("uid = 'ann'", "request 4711", ("events",), "officer@desk")
ARGS = argparse.Namespace(action="delete", dry_run=False, json=False)
Said = Iterator[tuple[str, dict[str, Any]]]


@pytest.fixture
def lake(tmp_path) -> Path:
    made = tmp_path / "lake"
    made.mkdir()
    return made


def test_an_order_is_taken_once_and_answered_once(lake):
    """As it was given, and by whom; nothing that says whose events these are is left."""
    path = orders.place(lake, Lake(), Order(ASKED, purge=True))
    assert orders.waiting(lake) == [path]
    assert orders.answer_to(path) is None
    taken: list[Order] = []

    def do(order: Order) -> Said:
        taken.append(order)
        assert orders.waiting(lake) == []
        assert orders.answer_to(path) is None
        yield "3 events deleted", {"events": 3}

    orders.obey(path, Lake(), do)
    assert taken == [Order(ASKED, purge=True)]
    assert not any(b"ann" in one.read_bytes() for one in path.parent.iterdir())
    answer = orders.answer_to(path)
    assert answer is not None
    assert (answer.said, answer.status) == ([("3 events deleted", {"events": 3})], 0)
    assert [*path.parent.iterdir()] == []


def test_what_can_not_be_done_is_answered(lake):
    """With what was said before it; and the job goes on."""
    path = orders.place(lake, Lake(), Order(ASKED))

    def do(order: Order) -> Said:
        yield "one", {}
        raise OSError("no room")

    orders.obey(path, Lake(), do)
    answer = orders.answer_to(path)
    assert answer is not None
    assert [text for text, _ in answer.said] == ["one", "no room"]
    assert answer.status == 1


@pytest.mark.parametrize("error", [NumberFormatException, SparkRuntimeException])
def test_a_row_that_the_condition_refuses_does_not_end_the_job(lake, error):
    """`cast(uid AS int) = 7` is a condition, and fails where a uid is no number."""
    path = orders.place(lake, Lake(), Order(ASKED))

    def do(order: Order) -> Said:
        raise error("[CAST_INVALID_INPUT] 'x' is no INT.\nHint\n== SQL ==\nmore")
        yield

    orders.obey(path, Lake(), do)
    answer = orders.answer_to(path)
    assert answer is not None
    text = "[CAST_INVALID_INPUT] 'x' is no INT. Hint == SQL =="
    assert (answer.said, answer.status) == ([(text, {"error": text})], 1)


def test_an_order_that_a_job_died_with(lake):
    """Is not begun again, as it may be why; who waits is told to ask again, as nothing may be
    written down.  An answer that nobody took goes after a day."""
    path = orders.place(lake, Lake(), Order(ASKED))

    def die(order: Order) -> Said:
        raise KeyboardInterrupt
        yield

    with pytest.raises(KeyboardInterrupt):
        orders.obey(path, Lake(), die)
    assert orders.waiting(lake) == []
    [said] = orders.dropped(lake, Lake())
    assert "ask for it again" in said
    [told] = path.parent.iterdir()
    assert b"ann" not in told.read_bytes()
    assert [*orders.dropped(lake, Lake())] == []
    assert told.exists()
    os.utime(told, (time.time() - 90_000,) * 2)
    assert [*orders.dropped(lake, Lake())] == []
    assert not told.exists()


def test_a_job_that_ends_leaves_it_to_the_command(lake, monkeypatch):
    """It waits no longer than there is a job, and then does it itself, once."""
    done: list[Order] = []
    monkeypatch.setattr(
        spark, "_delete_here", lambda args, config, order: done.append(order) or 0
    )
    config: Any = SimpleNamespace(data_dir=lake.parent)
    held = lock(lake / ".gateway" / "lock", "gateway spark")
    said: list[str] = []

    def say(args: Any, text: str, data: Any) -> None:
        said.append(text)
        assert len(orders.waiting(lake)) == 1
        threading.Timer(0.1, held.release).start()

    monkeypatch.setattr(spark, "_say", say)
    assert spark._ordered(ARGS, config, Order(ASKED), "in use by a job") == 0
    assert done == [Order(ASKED)]
    assert orders.waiting(lake) == []
    assert said[0].startswith("in use by a job: it deletes between two batches")


def test_a_condition_that_is_none_is_wrong_use(capsys):
    """Also where the job says so, after what it had to say before."""
    answer = orders.Answer([("first", {}), ("--where: no column x", {})], 2)
    with pytest.raises(WrongUse, match="no column x"):
        spark._answered(ARGS, answer)
    assert capsys.readouterr().out == "first\n"
