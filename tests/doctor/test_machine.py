"""The doctor looks at clocks, programs and limits of the machine."""

import os
import resource
from importlib import metadata

import pytest

from gateway.config import Config
from gateway.doctor import clocks, limits, programs
from gateway.doctor.look import Look
from gateway.sdk import native
from gateway.store.names import file_name
from incarnations import A

from .conftest import states, the

NOW = 1_800_000_000.0


class Clocks:
    """Both, and how far each goes while somebody sleeps."""

    def __init__(self, wall: float, by: float, monotonic: float) -> None:
        self._wall, self._by, self._passes, self._monotonic = wall, by, monotonic, 5.0

    def wall(self) -> float:
        return self._wall

    def monotonic(self) -> float:
        return self._monotonic

    def sleep(self, seconds: float) -> None:
        self._wall += self._by
        self._monotonic += self._passes


def look_at_clocks(
    config: Config, wall: float, by: float = 0.05, passes: float = 0.05
) -> list[Look]:
    made = Clocks(wall, by, passes)
    return list(
        clocks.examine(
            config, wall=made.wall, monotonic=made.monotonic, sleep=made.sleep
        )
    )


def test_good_clocks(make):
    assert states(iter(look_at_clocks(make(), NOW))) == {"ok"}
    assert states(clocks.examine(make())) == {"ok"}


@pytest.mark.parametrize("wall", [0.0, 40.0, 5e9, 1e15])
def test_a_year_that_can_not_be(make, wall):
    """1970 after a boot without a battery; or far ahead."""
    look = the(look_at_clocks(make(), wall), "clock")
    assert look.state == "fail"
    assert "NTP" in look.advice


def test_a_clock_that_is_set_meanwhile(make):
    look = the(look_at_clocks(make(), NOW, by=-60), "monotonic clock")
    assert (look.state, look.detail) == (
        "warn", "the clock was set by -60.0 s while we looked"
    )  # fmt: skip


def test_a_monotonic_clock_that_stands(make):
    look = the(look_at_clocks(make(), NOW, passes=0), "monotonic clock")
    assert look.state == "fail"
    assert "hypervisor" in look.advice


def test_a_file_from_the_future(make, tmp_path):
    """The clock was ahead once, or is behind now."""
    path = tmp_path / "data/archive" / file_name("gw-1", A, 1, 2)
    path.parent.mkdir(parents=True)
    path.touch()
    os.utime(path, (NOW + 100, NOW + 100))
    look = the(look_at_clocks(make(), NOW), "times of files")
    assert look.state == "warn"
    assert f"{path} is of 2027-01-15" in look.detail
    assert "1 min from now" in look.detail
    assert the(look_at_clocks(make(), NOW + 100), "times of files").state == "ok"


# -- Java and Spark ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spark", "state"), [("{}", "fail"), ("{master: 'spark://x:7077'}", "warn")]
)
def test_no_java(make, monkeypatch, spark, state):
    """It fails where the job is to run here, and is told where it need not."""
    monkeypatch.setattr(programs.java, "_candidates", lambda environ: [])
    config = make(spark=spark)
    look = the(programs.examine(config, environ={}), "Java")
    assert look.state == state
    assert "pip install" in look.advice


@pytest.mark.parametrize(
    ("spool", "states"),
    [("{after: keep}", []), ("{directory: s3://bucket/p}", ["warn"])],
)
def test_no_java_where_the_job_is_not(make, monkeypatch, spool, states):
    """Gateway and job may share a file: nothing fails for want of what the job needs."""
    monkeypatch.setattr(programs.java, "_candidates", lambda environ: [])
    config = make(spark="{trigger: 10s}", spool=spool)
    looks = programs.examine(config, environ={})
    assert [look.state for look in looks if look.what == "Java"] == states


def test_an_old_java_is_named(make, tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/java").touch(mode=0o755)
    (tmp_path / "release").write_text('JAVA_VERSION="11.0.2"\nMODULES="java.base"\n')
    found = [("JAVA_HOME", tmp_path)]
    monkeypatch.setattr(programs.java, "_candidates", lambda environ: found)
    look = the(programs.examine(make(), environ={}), "Java")
    assert look.state == "warn", "the configuration has no section spark"
    assert "Java 11 is too old" in look.detail


@pytest.mark.parametrize(
    ("version", "state"), [("4.1.0", "ok"), ("3.5.1", "fail"), ("5.0", "fail"), ("x", "fail")]
)  # fmt: skip
def test_spark_of_another_version(make, version, state):
    look = the(programs.examine(make(spark="{}"), version=lambda _: version), "Spark")
    assert look.state == state
    assert f"pyspark {version}" in look.detail


def test_no_spark(make):
    def version(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    for config, state in ((make(), "warn"), (make(spark="{}"), "fail")):
        look = the(programs.examine(config, version=version), "Spark")
        assert look.state == state
        assert "pip install" in look.advice


@pytest.mark.parametrize(
    ("module", "state"), [("json.tool", "ok"), ("nowhere.at_all", "warn")]
)
def test_a_function_of_ones_own(make, module, state):
    """Batches go to it, so its package is there; the job may find it by a path of its own."""
    config = make(spark=f"{{sink: '{module}:main'}}")
    assert the(programs.examine(config), "spark.sink").state == state


# -- the kernel in C -----------------------------------------------------------------------


def test_a_kernel_of_another_version_is_named(make, monkeypatch):
    """To have none is fine; one that is there and not taken is what nobody meant."""
    for said, state in (("not installed", "ok"), (native.OTHER, "warn")):
        monkeypatch.setattr(native, "said", said)
        look = the(programs.examine(make()), "kernel in C")
        assert (look.state, look.detail) == (state, said)


# -- limits --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hard", "state"),
    [(100, "fail"), (5000, "warn"), (12_000, "ok"), (resource.RLIM_INFINITY, "ok")],
)
def test_file_descriptors(make, monkeypatch, hard, state):
    """Against the sum of limits.connections."""
    monkeypatch.setattr(resource, "getrlimit", lambda which: (100, hard))
    look = the(limits.examine(make()), "file descriptors")
    assert look.state == state
    assert (state == "ok") == (not look.advice)
    assert state == "ok" or "LimitNOFILE=11024" in look.advice


@pytest.mark.parametrize(
    ("meminfo", "cgroup", "state"),
    [
        ("MemTotal:       8000000 kB\n", "max\n", "ok"),
        ("MemTotal:       8000000 kB\n", "600000000\n", "fail"),
        ("MemTotal:       650000 kB\n", None, "warn"),
        (None, None, "ok"),
    ],
)
def test_memory(make, tmp_path, monkeypatch, meminfo, cgroup, state):
    """Of the machine or of the container, against journal.memory_bytes."""
    for name, text in (("_MEMORY", meminfo), ("_CGROUP", cgroup)):
        path = tmp_path / name
        if text is not None:
            path.write_text(text)
        monkeypatch.setattr(limits, name, path)
    look = the(limits.examine(make()), "memory")
    assert look.state == state
    assert state == "ok" or "journal.memory_bytes" in look.advice
