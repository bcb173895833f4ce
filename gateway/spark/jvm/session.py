"""Spark with the settings that reading a spool safely needs."""

from __future__ import annotations

import contextlib
import locale
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from gateway.sdk.arrow import leave_pandas_out, without_pandas
from gateway.sink import kind_of
from gateway.spark.commit.formats import merged
from gateway.spark.files import s3a
from gateway.spark.files.heap import SMALL
from gateway.spark.jvm import cache, java
from gateway.spark.jvm.classes import Archive
from gateway.spark.run.causes import cause
from gateway.store.readers.lake import INTERNAL
from gateway.tables import ZSTD_LEVEL

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: What any job that reads a spool should set; each line is a loss that was seen.
SAFETY: Mapping[str, str] = {
    # A file that can not be read, or is gone, must stop the query: skipped files
    # count as read for ever.
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    # Without this a flipped bit in a page is a wrong value and no error.
    "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
    # Above 32 paths Spark starts a job with a task per file, only to list them.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000000",
    "spark.sql.session.timeZone": "UTC",
    # Else `${env:HOME}` in a default or in a condition is not what somebody wrote.
    "spark.sql.variable.substitute": "false",
}

_log = logging.getLogger("gateway.spark")

_LOGGING = Path(__file__).with_name("log4j2.properties")
_MOST_NOISE_BYTES = 16 << 20
"""Bytes of Java's output before its file begins anew."""
_JAVA_SECONDS = 5.0
"""Seconds after which it has ended, if it is about to."""


class NoSpark(java.NoJava):
    """There is a Java, and Spark could not begin on it; says why."""


#: Spark makes a row of the tables in one method.  With a few columns of one's own it has
#: more than 8,000 bytes, and Java would interpret it: rows cost more than twice as much.
_COMPILE = "-XX:-DontCompileHugeMethods"
#: How often Java runs a method or a loop before the thorough compiler takes it: sixteen times
#: as often as it would.  What is done for each row reaches that in seconds.  What is done for
#: each batch does in hours, and would not pay before.
_SELDOM = " ".join(
    f"-XX:Tier4{what}Threshold={16 * usual}"
    for what, usual in {
        "Invocation": 5000,
        "MinInvocation": 600,
        "Compile": 15000,
        "BackEdge": 40000,
    }.items()
)
#: The quick compiler alone: the thorough one takes 15 s of CPU, which pays for itself after a
#: million rows.
_QUICKLY = "-XX:TieredStopAtLevel=1"
#: The collector for a small heap, which it lets grow no further than it must: it takes less
#: memory and no CPU beside the tasks.
_COLLECTOR = " ".join(
    ["-XX:+UseSerialGC -Xms96m", *(f"-XX:{k}={v}" for k, v in SMALL._asdict().items())]
)
#: The C library has a pool of memory for each of Java's threads, and keeps what the compilers
#: have used at the start.
_MALLOC = {"MALLOC_ARENA_MAX": "2", "MALLOC_TRIM_THRESHOLD_": "131072"}
#: What Spark's own pages would show of jobs that are over: thousands, each with its plan.
_SHOWN = (
    *("spark.ui.retainedJobs", "spark.ui.retainedStages", "spark.ui.retainedTasks"),
    *("spark.sql.ui.retainedExecutions", "spark.sql.streaming.ui.retainedQueries"),
)
_FEW = "20"
_SMALL_HEAP = 2 << 30
_UNITS = {"k": 10, "m": 20, "g": 30, "t": 40}
_JAVA_ASKS = ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")
_OWN_COLLECTOR = re.compile(r"-XX:\+Use\w+GC\b")
#: The setting for the class that makes a checkpoint's files, and Spark's own that we take.
CHECKPOINT_FILES = "spark.sql.streaming.checkpointFileManagerClass"
FILES_OF_CHECKPOINTS = (
    "org.apache.spark.sql.execution.streaming.checkpointing"
    ".FileSystemBasedCheckpointFileManager"
)
_DRIVER, _EXECUTOR = (f"spark.{one}.extraJavaOptions" for one in ("driver", "executor"))

#: What `spark-submit` decides, whatever the configuration says.
_SUBMITTED = ("spark.master", "spark.driver.memory", "spark.driver.host")


def settings(
    spark: Any,
    given: Mapping[str, str] | None = None,
    more: Mapping[str, str] | None = None,
    classes: Archive | None = None,
    *,
    brief: bool = False,
) -> dict[str, str]:
    """All settings of a session, from the configuration's section `spark`.

    *more* is what the sink needs, *classes* what Java may map.  A *brief* one ends after at
    most some hundred thousand rows.  *given* is what `spark-submit` has set, None without one:
    only `SAFETY` and `spark.conf` go over it.
    """
    chosen = {
        "spark.app.name": "gateway",
        "spark.master": spark.master,
        "spark.driver.memory": spark.driver_memory,
        "spark.ui.enabled": "true" if spark.ui else "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.adaptive.enabled": "false",
        # Else each expression asks Java ten times where in our code it was written.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        # Columns that every reader of Parquet knows; Spark's default is INT96.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.hadoop.parquet.compression.codec.zstd.level": str(ZSTD_LEVEL),
        # Shredding saves an eighth of the size and costs half as much time again,
        # and few readers besides Spark can put the pieces together.
        "spark.sql.variant.writeShredding.enabled": "false",
        # A few files open at once instead of sorting every batch by table and date;
        # row groups are small so that they fit into a small heap together.
        "spark.sql.maxConcurrentOutputFileWriters": "4",
        "spark.hadoop.parquet.block.size": str(32 * 2**20),
        # Long texts that differ in every row: neither repeats nor is searched for.
        "spark.hadoop.parquet.enable.dictionary#body": "false",
        "spark.hadoop.parquet.enable.dictionary#lsn": "false",
        "spark.hadoop.parquet.enable.dictionary#seq": "false",
        "spark.hadoop.parquet.enable.dictionary#payload": "false",
        # Two values for one key: neither is the right one, so the bytes are kept.
        "spark.sql.variant.allowDuplicateKeys": "false",
        "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
        # The default starts the program `readlink` four times a batch.
        CHECKPOINT_FILES: FILES_OF_CHECKPOINTS,
    }
    if not spark.ui:
        chosen |= dict.fromkeys(_SHOWN, _FEW)
    if spark.master.startswith("local"):
        chosen["spark.driver.host"] = "127.0.0.1"
        # A task that runs out of heap ends alone, and not all of Java: `gateway.spark.files.heap`.
        chosen["spark.executor.killOnFatalError.depth"] = "0"
    quiet = f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}"
    chosen |= more or {}
    own_driver = str(spark.conf.get(_DRIVER, ""))
    told = " ".join([*(os.environ.get(one, "") for one in _JAVA_ASKS), own_driver])
    driver = [] if classes is None else [classes.options(told)]
    driver += [quiet, _COMPILE, "" if "-XX:Tier4" in told else _SELDOM]
    if spark.master.startswith("local"):
        number, unit = spark.driver_memory[:-1], spark.driver_memory[-1]
        small = int(number) << _UNITS[unit] <= _SMALL_HEAP
        driver += [_COLLECTOR] if small and not _OWN_COLLECTOR.search(told) else []
        driver += [_QUICKLY] if brief else []
    options = {
        _DRIVER: " ".join(filter(None, driver)),
        _EXECUTOR: f"{_COMPILE} {_SELDOM}",
    }
    for name, ours in options.items():
        chosen[name] = f"{ours} {spark.conf.get(name, '')}".strip()
    if given is not None:
        for name in (*_SUBMITTED, _DRIVER, *given):
            chosen.pop(name, None)
    own = {name: value for name, value in spark.conf.items() if name not in options}
    own = {name: str(value) for name, value in own.items()}
    return merged({**chosen, **SAFETY}, own)


def pythons(
    master: str, own: Mapping[str, Any], environ: Mapping[str, str]
) -> dict[str, str]:
    """The Python that Spark starts for functions in Python, as variables of the environment.

    It is the one of the configuration, or else of *environ*, as with every Spark.  Where neither
    says and Spark runs on this machine, it is ours.  The `python3` of the PATH, which Spark
    would take, may be of another version, and each such function would fail.  Machines of a
    cluster may have nothing where ours is: they take the `python3` of their PATH.
    """
    told = own.get("spark.pyspark.python") or environ.get("PYSPARK_PYTHON")
    driver = own.get("spark.pyspark.driver.python")
    driver = driver or environ.get("PYSPARK_DRIVER_PYTHON") or told or sys.executable
    if not told and master.startswith("local"):
        told = sys.executable
    found = {"PYSPARK_PYTHON": told, "PYSPARK_DRIVER_PYTHON": driver}
    return {name: str(program) for name, program in found.items() if program}


def java_status() -> int | None:
    """The exit status of a Java that has ended; None where another program started it."""
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)  # noqa: SLF001
    try:
        return None if process is None else int(process.wait(_JAVA_SECONDS))
    except subprocess.TimeoutExpired:
        return None


def end_java() -> None:
    """Kill what is coming up, and has nothing in hand yet."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(path.read_text().rpartition(")")[2].split()[1]) == os.getpid():
                os.kill(int(path.parent.name), signal.SIGKILL)


def of(config: Any, whose: str = "java", *, brief: bool = False) -> SparkSession:
    """A session with what the configuration's sink needs.

    What Java itself says goes to the file of that name (`noise_of`).  A *brief* session ends
    after at most some hundred thousand rows.
    Raises `Broken`, `java.NoJava`, ModuleNotFoundError, and what Spark raises.
    """
    import pyspark

    version = pyspark.__version__
    kind = kind_of(config.spark.sink)
    # A function of one's own may make arrays of series.
    if ":" not in config.spark.sink:
        leave_pandas_out()
    more = kind.settings(config.spark, config.data_dir, version)
    more = merged(more, s3a.for_tasks(config, version))
    warehouse = config.data_dir / "lake" / INTERNAL / "warehouse"
    return start(config.spark, warehouse, more, noise_of(config, whose), brief=brief)


def noise_of(config: Any, whose: str = "java") -> Path:
    """Where what Java itself says goes."""
    return Path(config.data_dir / "lake" / INTERNAL / f"{whose}.log")


def start(
    spark: Any,
    warehouse: Path,
    more: Mapping[str, str] | None = None,
    noise: Path | None = None,
    *,
    brief: bool = False,
) -> SparkSession:
    """A session; Java is looked for unless spark-submit has started it already.

    *warehouse* is a folder that Spark makes for tables that it keeps itself, of which there are
    none; it would be one in the current folder.
    *more* is what the sink needs (`gateway.sink.Kind.settings`).  Java's own output
    goes to the file *noise*.  Raises `java.NoJava`, and what Spark raises.
    """
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    classes = None
    if not submitted:
        os.environ |= pythons(spark.master, spark.conf, os.environ)
        os.environ |= {**_MALLOC, **os.environ}
        found = java.find(os.environ)
        _log.info("%s", found)
        if (ours := cache.folder(os.environ)) is not None:
            classes = Archive(found, ours)
        os.environ["JAVA_HOME"] = str(found.home)
        # In any other locale Java can not name a file that Python can: é becomes a ?.
        if locale.nl_langinfo(locale.CODESET) != "UTF-8":
            os.environ["LC_ALL"] = "C.UTF-8"
        # Or Spark asks the resolver for this host's name, and warns of the answer.
        if spark.master.startswith("local"):
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from py4j.protocol import Py4JError
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException, PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    given = None
    if submitted:
        # Only a running Java knows what was on its command line.
        SparkContext._ensure_initialized()  # noqa: SLF001
        given = dict(SparkConf().getAll())
        os.environ |= pythons(given.get("spark.master", ""), spark.conf, os.environ)
    # Hadoop decodes nothing: with %20 it would be another folder than with a space.
    own = {"spark.sql.warehouse.dir": f"file://{warehouse.absolute()}"}
    chosen = settings(spark, given, {**own, **(more or {})}, classes, brief=brief)
    builder = SparkSession.builder.config(map=dict(chosen))
    if noise is not None and not submitted and SparkContext._gateway is None:  # noqa: SLF001
        with _anew(noise) as out:
            try:
                gateway = launch_gateway(
                    SparkConf(loadDefaults=False).setAll([*chosen.items()]),
                    {"stdout": out, "stderr": out},
                )
            except PySparkRuntimeError as why:
                raise NoSpark(_why(noise, str(why))) from why
            SparkContext._ensure_initialized(gateway=gateway)  # noqa: SLF001
    # PySpark puts its own way to deal with ^C in place of whoever was there first.
    interrupted = signal.getsignal(signal.SIGINT)
    try:
        with without_pandas():  # PySpark asks for its version; the job does without
            session = builder.getOrCreate()
            session.conf  # noqa: B018 - makes what it has of the settings
    except (Py4JError, PySparkException, ConnectionError) as why:
        raise NoSpark(_why(noise, str(why))) from why
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, interrupted)
    _log.info("Spark %s on %s", session.version, session.sparkContext.master)
    return session


def _why(noise: Path | None, raised: str) -> str:
    """Why Spark could not begin, by what Java said, or else by what was *raised*."""
    said = noise.read_text(errors="replace") if noise and noise.exists() else ""
    where = f" ({noise})" if noise else ""
    return f"Spark could not begin: {cause(said) or cause(raised) or raised}{where}"


def _anew(path: Path) -> IO[bytes]:
    """Open the file, empty; the one of the job before is beside it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        path.replace(path.with_name(f"{path.name}.1"))
    return path.open("ab")  # what is appended stays right where the file is cut short


def bound(noise: Path) -> None:
    """Begin the file of what Java says anew, if it is long: its end is in `.1` then."""
    try:
        if noise.stat().st_size > _MOST_NOISE_BYTES:
            shutil.copyfile(noise, noise.with_name(f"{noise.name}.1"))
            os.truncate(noise, 0)
    except FileNotFoundError:
        return
