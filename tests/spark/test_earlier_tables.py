"""Tables that an earlier version has made go on under this one, in all sinks.

The earlier version is commit a1343e3, the last one whose ledger and tables had no
incarnations; its code runs in a process of its own, with the Spark of this environment.
The jobs of a test are sessions of one Java.
"""

from __future__ import annotations

import importlib.util
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyspark
import pytest

from deadlines import ROOT, environment, finish
from gateway.audit import audit
from gateway.config import model
from gateway.sinks import delta, iceberg
from gateway.store.directories import Directories
from gateway.store.lake import committed
from gateway.store.lsns import Lsns
from gateway_testkit.settings import options_of
from one_java import one_java

pytestmark = pytest.mark.spark

EARLIER = "a1343e3"

_fits = pytest.mark.skipif(
    not all(one.kind.fits(pyspark.__version__) for one in (delta, iceberg)),
    reason=f"no jars fit Spark {pyspark.__version__}; `make long ONLY=lowest` has one they fit",
)


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The code of that version; skipped where its history is not there."""
    command = ["git", "-C", str(ROOT), "archive", EARLIER, "gateway"]
    try:
        code = subprocess.run(command, check=True, capture_output=True).stdout
    except (OSError, subprocess.CalledProcessError) as why:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(f"needs the repository's history: {why}")
    folder = tmp_path_factory.mktemp("earlier")
    with tarfile.open(fileobj=io.BytesIO(code)) as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.fixture
def java(sink: str, tmp_path: Path) -> Iterator[Mapping[str, str]]:
    """The environment of the jobs: a Java that has the jars of the format."""
    format_ = "parquet" if ":" in sink else sink
    asked = options_of(model.Spark, sink=format_, driver_memory="1g")
    with one_java(asked, tmp_path / "data") as found:
        yield found


def lines(first: int, count: int, word: str) -> list[bytes]:
    return [
        b'{"message":"%b %d"}' % (word.encode(), n) for n in range(first, first + count)
    ]


@pytest.mark.parametrize(
    "sink",
    [
        pytest.param("parquet", marks=pytest.mark.long),
        pytest.param("delta", marks=[_fits, pytest.mark.needs_maven]),
        pytest.param("iceberg", marks=[_fits, pytest.mark.needs_maven]),
        pytest.param("warehouse_of_ours:put", marks=pytest.mark.long),
    ],
)
def test_tables_of_an_earlier_version_go_on(
    sink: str,
    earlier: Path,
    java: Mapping[str, str],
    spool: Any,
    settings_file: Callable[..., Path],
    tmp_path: Path,
) -> None:
    """What was in them is told by the event itself: it is not doubled, and a node that was
    rebuilt meanwhile loses nothing.  The audit takes rows without an incarnation as those
    of the one that was there.
    """
    (tmp_path / "warehouse_of_ours.py").write_text(
        "def put(batch, context):\n"
        f"    place = f'file://{tmp_path}/ours/{{context.batch}}'\n"
        "    batch.select('node', 'lsn', 'message').write.parquet(place)\n"
    )
    data = tmp_path / "data"
    config = settings_file(sink=sink, driver_memory="1g")

    def once(code: Path | None) -> None:
        paths = [str(tmp_path), *([str(code)] if code else [])]
        home = {**environment(), **java, "PYTHONPATH": os.pathsep.join(paths)}
        command = [sys.executable, "-m", "gateway.cli", "spark", "--once"]
        run = subprocess.Popen(
            [*command, "--config", str(config)],
            env=home,
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        said, _ = finish(run)
        assert run.returncode == 0, said.decode(errors="replace")[-3000:]

    again = spool.put("gw", 1, lines(1, 10, "old"), incarnation="aa", received_at=1_000)
    kept = again.read_bytes()
    spool.put("gw", 11, lines(11, 5, "old"), incarnation="aa", received_at=2_000)
    once(earlier)
    assert json.loads((data / "lake/.gateway/events.json").read_bytes())["format"] == 2

    shutil.rmtree(data / "checkpoint")
    again.write_bytes(kept)
    spool.put("gw", 16, lines(16, 5, "old"), incarnation="aa", received_at=3_000)
    once(None)
    assert committed(data / "lake") == {
        "gw": {"": Lsns([(1, 15)]), "aa": Lsns([(16, 20)])}
    }
    assert spool.names() == []
    if importlib.util.find_spec({"delta": "deltalake"}.get(sink, "pyiceberg")) is None:
        return
    report = audit(Directories.under(data))
    assert not report.problems
    assert report.complete, report
    if ":" in sink:
        return  # only its target knows what was handed over by no known incarnation

    spool.put("gw", 1, lines(1, 10, "new"), incarnation="bb", received_at=4_000)
    once(None)
    assert committed(data / "lake") == {
        "gw": {"": Lsns([(1, 15)]), "aa": Lsns([(16, 20)]), "bb": Lsns([(1, 10)])}
    }
    report = audit(Directories.under(data))
    assert not report.problems
    (node,) = report.nodes
    assert not len(node.holes)
    assert not len(node.doubles)
    rows: Counter[Any] = spool.produced
    assert sum(rows.values()) == 30
