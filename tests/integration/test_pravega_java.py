"""The published Java client of Pravega, unchanged, against the real daemon.

What it does, and what must come of each call, is in `java_client/PravegaClient.java` and
`Samples.java`; here is what must be in the files then.
"""

import contextlib
import json
import os
import re
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from daemons import nothing_is_kept
from deadlines import excerpt, finish, next_line, run
from making import Make
from pravega_python import Streams
from programs import ask_registry, built_once, program, running

pytestmark = pytest.mark.needs_maven

MiB = 2**20
PROJECT = Path(__file__).with_name("java_client")
OLD = Path(__file__).with_name("old_java_client")
PAGES = Path(__file__).parents[2] / "docs" / "clients"
HOST = "gw.example"
SECONDS = 120.0
"""For a program."""


@pytest.fixture(scope="session")
def java() -> list[str]:
    """A command that takes the words of the client's program."""
    return command(PROJECT, "PravegaClient")


def command(project: Path, name: str) -> list[str]:
    """The class of this *name* in the *project*, as a command.

    Where there is no JDK, or where Maven is not there or gets nothing, the test is
    skipped; in CI it fails.
    """
    for need in ("java", "javac", "mvn"):
        program(need)
    home = built_once(project, build)
    # For a program that runs a few seconds; its log has what goes wrong.  A writer that
    # flushes a sealed segment warns without a pause until it has its successors.
    options = (
        "-Xmx1536m -XX:+UseSerialGC -XX:TieredStopAtLevel=1"
        " -Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
        " -Dorg.slf4j.simpleLogger.log"
        ".io.pravega.client.stream.impl.EventStreamWriterImpl=error"
    )
    path = f"{home}{os.pathsep}{home}/jars/*"
    return ["java", *options.split(), "-cp", path, name]


def build(home: Path) -> None:
    """Fetch what the client needs, and compile the program."""
    jars = home / "jars"
    fetch = ["mvn", "-B", "-q", "dependency:copy-dependencies"]
    ask_registry(*fetch, f"-DoutputDirectory={jars}", cwd=home)
    sources = sorted(one.name for one in home.glob("*.java"))
    done = run("javac", "-nowarn", "-cp", f"{jars}/*", *sources, cwd=home)
    assert done.returncode == 0, done.stderr


class JavaStreams(Streams):
    """A daemon that serves Pravega, and how Java programs are run against it."""

    def __init__(
        self,
        prepare: Make,
        java: list[str],
        start: Make[subprocess.Popen[str]],
        **more: Any,
    ) -> None:
        """*more* are settings of the listener, and those of `spool`."""
        given = {name: more.pop(name, {}) for name in ("options", "spool")}
        super().__init__(prepare, {**given, "listener": more})
        *self._java, self._name = java
        self._start = start
        self._log = self.daemon.config.with_name("java.log")

    def begin(
        self,
        what: str,
        *more: object,
        scheme: str = "tcp",
        properties: Mapping[str, str] = MappingProxyType({}),
    ) -> Any:
        """Start the program; the first word says what it is to do."""
        uri = f"{scheme}://localhost:{self.controller_port}"
        options = (f"-D{name}={value}" for name, value in properties.items())
        words = (*self._java, *options, self._name, what, uri, *more)
        with self._log.open("w") as log:
            return self._start(*words, stdin=subprocess.PIPE, stderr=log)

    def log(self) -> str:
        """What the program said of its errors."""
        return excerpt(self._log)

    def run(self, what: str, *more: object, **how: Any) -> list[bytes]:
        """What the tables have when the program has ended, as it must."""
        return self.finished(self.begin(what, *more, **how))

    def hear(self, program: subprocess.Popen[str], line: str) -> None:
        """It says this next."""
        assert next_line(program, SECONDS, self._log) == f"{line}\n", self.log()

    def tell(self, program: subprocess.Popen[str], line: str) -> None:
        """Say this to it; one that has ended heeds nothing."""
        assert program.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            program.stdin.write(f"{line}\n")
            program.stdin.flush()

    def said(self, program: subprocess.Popen[str], told: str = "") -> str:
        """The rest of its output, once it has ended; it is *told* this before."""
        if told:
            self.tell(program, told)
        return finish(program, SECONDS, self._log)[0]

    def finished(self, program: subprocess.Popen[str], told: str = "") -> list[bytes]:
        said = self.said(program, told)
        assert program.returncode == 0, self.log()
        self.daemon.settled()
        rows = self.daemon.rows()
        # What groups and synchronizers share is in streams that are nobody's rows.
        assert not [row["channel"] for row in rows if "/_" in row["channel"]]
        if "events" in said:
            assert len(rows) == int(said.split()[-1])
            assert {row["flaw"] for row in rows} == {None}
        return [row["payload"] for row in rows]


@pytest.fixture
def serve(prepare, java) -> Iterator[Make[JavaStreams]]:
    """Start a daemon; *more* are settings of its Pravega listener."""
    with running() as start:
        yield lambda **more: JavaStreams(prepare, java, start, **more)


def numbered(what: str, count: int) -> list[bytes]:
    return [b"%s %d" % (what.encode(), n) for n in range(count)]


def test_a_client_of_before_0_9(prepare):
    """Version 0.8.0 keeps its connections, though each flush sends a KeepAlive; the group
    that it makes by itself reads each event once, and leaves nothing.
    """
    java = command(OLD, "OldClient")
    with running() as start:
        streams = JavaStreams(prepare, java, start)
        stored = streams.run("all")
    assert set(stored) == {*numbered("event", 100), *numbered("staged", 10)}
    assert "KeepAlive" not in streams.log()


def test_streams_with_tags_sealed_and_deleted(serve):
    """Scopes and streams are made, found, listed by tags, sealed and deleted."""
    serve().run("streams")


def test_every_event_is_read_once_and_in_the_files_once(serve):
    """Written with and without keys, together, over pooled connections, and one of nine
    MiB: two readers of a group read each once, in order; a row each.
    """
    stored = serve().run("events")
    assert set(numbered("event", 1000)) < set(stored)
    assert max(map(len, stored)) == 9 * MiB
    assert max(Counter(stored).values()) == 1


def test_back_to_a_checkpoint(serve):
    """A checkpoint of two readers completes; set back to it they read on from there."""
    stored = serve().run("checkpoints")
    assert set(stored) == {*numbered("first", 200), *numbered("second", 200)}


def test_transactions(serve):
    """Committed ones are read and in the files, also one that was taken up again by its
    id; those of an aborted one never.
    """
    stored = serve().run("transactions")
    assert set(stored) == {*numbered("committed", 100), *numbered("resumed", 11)}


def test_byte_streams(serve):
    """Written, sought, read, truncated, sealed; the rows are the bytes."""
    stored = b"".join(serve().run("bytes"))
    assert stored == bytes((n * 31 + n // 251) & 255 for n in range(1_000_000))


def test_a_reader_at_the_end(serve):
    """Who waits at the end of a stream gets each event as it comes."""
    assert serve().run("tail") == numbered("event", 20)


def test_batch_reads(serve):
    """A range for each segment, as Spark's and Hadoop's connectors read."""
    assert set(serve().run("batch")) == set(numbered("event", 500))


def test_stream_cuts(serve):
    """A stream is read between places where it once ended, by ranges and by a group,
    and is truncated at one; the rows of what was truncated stay.
    """
    what = ("first", "second", "third")
    expected = [event for each in what for event in numbered(each, 100)]
    assert set(serve().run("cuts")) == set(expected)


def test_tls_and_passwords(serve, authority):
    """Over TLS, with a password and tokens that must be renewed, all goes as without;
    with a wrong password nothing does.
    """
    pair = authority.issue("localhost")
    streams = serve(
        tls={"certificate": str(pair.certificate), "private_key": str(pair.key)},
        options={"users": {"ann": "secret"}, "token_lifetime": "10s"},
    )
    stored = streams.run("events", "ann", "secret", authority.ca, scheme="tls")
    assert len(stored) == 1006
    wrong = streams.begin("streams", "ann", "wrong", authority.ca, scheme="tls")
    with pytest.raises(AssertionError, match="UNAUTHENTICATED"):
        streams.finished(wrong)


def copied_once(rows: list[bytes], count: int) -> bool:
    """Each event is in the stream that was read, and in the one it was copied to."""
    return Counter(rows) == dict.fromkeys(numbered("event", count), 2)


def shown(page: str) -> tuple[dict[str, Any], dict[str, str]]:
    """What a page has to copy: options of the gateway's listener, and the job's properties."""
    text = (PAGES / page).read_text().replace("${file:/run/secrets/", "${")
    [block] = re.findall(r"```yaml\n(listeners:.*?)```", text, re.DOTALL)
    [listener] = yaml.safe_load(re.sub(r"\$\{\w+\}", "secret", block))["listeners"]
    options = listener["options"]
    lines = "".join(
        re.findall(r"```properties\n(.*?)```", text, re.DOTALL)
    ).splitlines()
    properties = dict(line.split("=", 1) for line in lines if line)
    # Those of this machine take their places.
    for uri in ("pravega.controller.uri", "controller"):
        if uri in properties:
            assert properties[uri] == f"tcp://{HOST}:9090"
    assert (options.pop("controller"), options.pop("advertise")) == (
        "tcp:9090", f"{HOST}:12345",
    )  # fmt: skip
    return options, properties


@pytest.mark.slow
def test_what_a_job_of_flink_does(serve):
    """With the settings of its page: reader groups that stand at its checkpoints, and
    transactions that are committed after them, while the stream scales and the job fails
    twice; each event is copied once.
    """
    options, properties = shown("pravega-flink.md")
    streams = serve(options=options)
    rows = streams.run("flink", "ops", "secret", properties=properties)
    assert copied_once(rows, 1000)
    assert {row["principal"] for row in streams.daemon.rows()} == {"ops", "job"}


def test_what_micro_batches_of_spark_do(serve):
    """With the settings of its page: ranges between two ends of a stream that scales, and
    transactions that another one commits by their ids; each event is copied once.
    """
    options, properties = shown("pravega-spark.md")
    streams = serve(options=options)
    rows = streams.run("spark", "ops", "secret", properties=properties)
    assert copied_once(rows, 800)


def test_three_teams_that_may_do_different_things(serve, eventually):
    """Each does what the rules say, with groups and transactions; all else is denied at
    once with the reason, also to a writer whose rule a reload takes away.
    """
    rules = [
        {"principals": ["boss"], "manage": ["s/*"]},
        {"principals": ["writer"], "write": ["s/orders"]},
        {"principals": ["billing"], "read": ["s/orders"], "groups": ["s/billing"]},
    ]
    users = dict.fromkeys(("boss", "writer", "billing"), "secret")
    streams = serve(options={"users": users, "access": rules})
    program = streams.begin("access", "boss", "secret")
    streams.hear(program, "written")
    daemon = streams.daemon
    settings = json.loads(daemon.config.read_text())
    settings["listeners"][0]["options"]["access"][1]["write"] = ["s/others"]
    daemon.config.write_text(json.dumps(settings))
    daemon.hang_up()
    eventually(
        lambda: "access" in str(daemon.status()["reload"]["changed"]), "the reload"
    )
    rows = streams.finished(program, "go on")
    assert rows == numbered("order", 11)
    for told in (
        "'billing' may not write 's/orders'",
        "'writer' may not manage 's/mine'",
    ):
        assert daemon.log.count(f"Denied: {told} (options.access)") == 1


@pytest.mark.slow
def test_killed_in_between(serve, eventually):
    """The gateway is killed twice while one writer writes and one reader reads: neither
    needs to be told, and every event is read once, and in the files once.
    """
    streams = serve()
    program = streams.begin("killed")
    streams.hear(program, "writing")
    daemon = streams.daemon
    for _ in range(2):
        before = daemon.status()["journal"]["durable_lsn"]
        eventually(
            lambda: daemon.status()["journal"]["durable_lsn"] > before + 500,  # noqa: B023
            "events come",
        )
        daemon.restart()
        # One that waits for an answer gives up after 30 s: not both kills are for one.
        streams.tell(program, "read?")
        streams.hear(program, "read")
    stored = streams.finished(program, "enough")
    assert len(stored) > 1000
    assert Counter(stored) == Counter(numbered("event", len(stored)))


@pytest.mark.slow
def test_many_at_one_stream(serve, eventually):
    """Three writers tell the time, of which one falls silent and one leaves, and so does one
    of transactions; a group of eight readers loses two, batch jobs read what came between;
    all the while the stream is split and merged, and the gateway is killed.  Readers get each
    event once, those of a key in order, and none later than a time that they were told of.
    """
    streams = serve()
    daemon, program = streams.daemon, streams.begin("crowd")
    streams.hear(program, "writing")
    for word in ("lose", "silent", "leave", "back"):
        before = daemon.status()["journal"]["durable_lsn"]
        eventually(
            lambda: daemon.status()["journal"]["durable_lsn"] > before + 500,  # noqa: B023
            "events come",
        )
        daemon.restart()
        streams.tell(program, word)
        streams.hear(program, word)
    stored = streams.finished(program, "enough")
    assert len(stored) > 2000
    assert max(Counter(stored).values()) == 1


@pytest.mark.slow
def test_what_programs_share_does_not_expire(serve):
    """A state synchronizer and a reader group go on where they were after the gateway
    was killed and retention has deleted every file: nothing of their state was in one.
    """
    streams = serve()
    for before in ("0", "20"):
        program = streams.begin("synchronizer")
        said = streams.said(program)
        assert (program.returncode, said.split()) == (0, ["had", before]), streams.log()
        streams.daemon.settled()
        files = [*streams.daemon.spool.glob("*.parquet")]
        channels = pq.read_table(files, columns=["channel"])["channel"].to_pylist()
        assert channels == ["s/t/0.#epoch.0"]
        streams.daemon.kill()
        for file in files:
            file.unlink()
        streams.daemon.start()


@pytest.mark.slow
def test_a_group_that_is_never_empty(serve, eventually):
    """Readers join and leave it long after the files of its first days have left the
    archive, and after the gateway was killed; each event is read once.
    """
    streams = serve(
        spool={"after": "keep", "retention": "1s"}, options={"recent_bytes": "64KiB"}
    )
    daemon, rounds = streams.daemon, 4
    program = streams.begin("joined")
    for round_ in range(rounds):
        streams.tell(program, "join")
        streams.hear(program, f"read {20 * (round_ + 1)}")
        daemon.settled()
        eventually(lambda: nothing_is_kept(daemon), "every file leaves the archive")
        daemon.restart()
    said = streams.said(program, "enough")
    assert (program.returncode, said) == (0, f"events {20 * rounds}\n"), streams.log()


@pytest.mark.smoke
def test_hello_world(serve):
    """The first thing that a user of Pravega runs."""
    assert serve().run("hello") == [b"hello world"]


def test_scaled_while_it_is_written_to(serve):
    """Split, merged, and scaled by updates, with a transaction open over that: no event
    is lost or there twice, for readers or in the files.
    """
    stored = serve().run("scaled")
    assert len(stored) == 10 + 6 * 200
    assert max(Counter(stored).values()) == 1


@pytest.mark.slow
def test_readers_follow_a_scaling(serve):
    """Two readers of a group read each event once, those of a key in order.  It takes
    this client up to half a minute to leave a segment that has ended.
    """
    stored = serve().run("followed")
    assert len(stored) == max(Counter(stored).values()) * 400


@pytest.mark.parametrize(
    ("transactions", "milliseconds", "runs"),
    [
        (50, 2000, 1),
        (1, 2000, 25),
        (6, 2000, 25),
        (1, 30_000, 20),
        (6, 30_000, 20),
        (50, 30_000, 10),
    ],
)
def test_commits_over_a_scaling_share_their_epochs(
    serve, transactions, milliseconds, runs
):
    """However many transactions are open while a stream is split: two epochs, which a
    reader gets over with two checkpoints, be they two seconds apart or Java's thirty.
    """
    stored = serve().run("together", f"{transactions},{milliseconds},{runs}")
    assert Counter(Counter(stored).values()) == {runs: 200 + transactions * 10}


def test_key_value_tables(serve):
    """Made, listed, filled on conditions, read in order, deleted; nothing is an event."""
    assert serve().run("tables") == []


@pytest.mark.slow
def test_time_windows(serve):
    """A reader knows the time that writers noted; marks are made every ten seconds."""
    serve().run("watermarks")


@pytest.mark.slow
def test_retention_by_consumption(serve):
    """What a subscribed group has released is deleted, at the gateway's next look, which
    is once a minute; the rows stay.
    """
    stored = serve().run("consumption")
    assert set(stored) == {*numbered("first", 100), *numbered("second", 100)}


@pytest.mark.parametrize(
    ("size", "limit"), [(40, 16 * MiB), pytest.param(300, 256 * MiB, id="300 MiB")]
)
def test_an_event_that_is_too_large(serve, size, limit):
    """The client fails at once, with the reason in its log, and goes on with others; so
    with what is the limit if nobody sets one.
    """
    options = {"transaction_bytes": f"{limit // MiB}MiB"} if size < 256 else {}
    streams = serve(options=options)
    assert streams.run("huge", size) == [b"small"]
    assert f"limit {limit} (options.transaction_bytes)" in streams.log()
