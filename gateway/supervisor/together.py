"""The daemon and the Spark job, kept running until ^C; with one log, and one end."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.error import CannotListenError
from twisted.internet.protocol import DatagramProtocol
from twisted.internet.task import LoopingCall
from twisted.internet.threads import deferToThread
from twisted.python.failure import Failure

from gateway.config import Config
from gateway.sdk.command import INTERRUPTED, PIPE_CLOSED, nobody_reads
from gateway.spark.jvm.classes import Archive
from gateway.spark.run import progress
from gateway.spark.run.admin import Told
from gateway.supervisor import child
from gateway.supervisor.kept import Kept, State
from gateway.supervisor.log import Log

_LOOK_SECONDS = 1.0
_OF_OURS = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
"""Variables from systemd for this process, not for its children."""
_DAEMON_LOOKS = 60
"""Looks without a sign of life, as WatchdogSec= of its unit."""
_JOB_LOOKS = 600
"""Looks without a sign of life: it may wait for the end of a batch."""
_STOPPING = "stopping cleanly, which may take some seconds; ^C again kills"
_KILLING = (
    "killed; what was acknowledged stays, and comes into the tables at the next start"
)


class Together:
    """The processes of one gateway; *sentence* asks the daemon for its state, and may block."""

    def __init__(
        self, config: Config, file: Path, log: Log, sentence: Callable[[], str]
    ) -> None:
        from twisted.internet import reactor as installed

        reactor: Any = installed
        self._reactor = reactor
        self._config = config
        self._log = log
        self._sentence = sentence
        self._said = ""
        """The last answer of *sentence*."""
        self._asking: Deferred[None] | None = None
        self._stopping = False
        self.status = 0
        """The exit status of `gateway run`."""
        self._folder = tempfile.mkdtemp(prefix="gateway-run-")
        notices = str(Path(self._folder, "notify"))
        environ = {
            name: each for name, each in os.environ.items() if name not in _OF_OURS
        }
        named = ["--config", str(file)]
        self._daemon = self._kept(
            "gateway",
            "the daemon",
            child.words("daemon", "-n", "--pidfile=", "gateway", *named),
            {
                **environ,
                "NOTIFY_SOCKET": notices,
                "WATCHDOG_USEC": str(_DAEMON_LOOKS * 1_000_000),
            },
            vital=True,
            most_silent_looks=_DAEMON_LOOKS,
        )
        self._recording = self._kept(
            "run", "the recording", child.words("recording"), environ, once=True
        )
        self._recorded = False
        self._kepts = [self._daemon]
        self._job: Kept | None = None
        self._job_told: Mapping[str, Any] = {}
        """The last report of the job."""
        if config.spool.has_job:
            self._job = self._kept(
                "spark",
                "the Spark job",
                child.words("job", "--json", *named),
                environ,
                most_silent_looks=_JOB_LOOKS,
            )
            self._kepts.append(self._job)
        try:
            reactor.listenUNIXDatagram(notices, _Notices(self._noticed))
        except CannotListenError as why:  # the path of a socket has an end
            shutil.rmtree(self._folder, ignore_errors=True)
            text = f"{why.socketError} (TMPDIR)"
            raise OSError(errno.ENAMETOOLONG, text, notices) from None
        self._hear_signals()

    def _kept(self, *given: Any, **how: Any) -> Kept:
        name, title, words, environ = given
        return Kept(name, title, words, environ, self._reactor, self, **how)

    def run(self) -> int:
        """Run until stopped, or until it can not go on; return the exit status."""
        self._reactor.callWhenRunning(self._begin)
        self._reactor.run()
        shutil.rmtree(self._folder, ignore_errors=True)
        self._log.close()  # raises BrokenPipeError where the terminal is gone
        return self.status

    def _hear_signals(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._signalled)

    def _begin(self) -> None:
        self._hear_signals()  # Twisted's own would end this process before the others
        for each in self._kepts:
            each.start()
        looks = LoopingCall(self._carefully, self._look)
        looks.clock = self._reactor
        looks.start(_LOOK_SECONDS)

    def _signalled(self, number: int, _: object) -> None:
        self._reactor.callFromThread(self._carefully, self._asked, number)

    def _asked(self, number: int) -> None:
        """Stop on a signal; the second one makes it quick."""
        if not self._stopping:
            self._log.line(_STOPPING)
            self._stop()
        elif number == signal.SIGINT:
            self.status = INTERRUPTED
            for each in (*self._kepts, self._recording):
                each.kill()
            self._log.line(_KILLING)

    def _stop(self) -> None:
        self._stopping = True
        for each in (*self._kepts, self._recording):
            each.stop()

    def _carefully(self, do: Callable[..., None], *given: object) -> None:
        """Call *do*, which may write to the log; stop if the log's reader is gone."""
        try:
            do(*given)
        except BrokenPipeError:
            self.status = PIPE_CLOSED
            if not self._stopping:
                self._stop()

    # -- what is heard -----------------------------------------------------------------

    def line(self, kept: Kept, descriptor: int, text: str) -> None:
        if kept is self._recording:
            if descriptor == 2:  # its job's log
                return
        elif kept is not self._daemon and descriptor == 1:
            text = self._news(kept, text)
        self._carefully(self._log.line, text, kept.name)

    def _news(self, job: Kept, text: str) -> str:
        """The job's report as a line of its log."""
        try:
            news = json.loads(text)
            if news.get("state") == "running":
                job.up()
            if "batch" in news:
                self._record()
            return (
                text if self._config.logging.format == "json" else progress.words(news)
            )
        except (ValueError, AttributeError, KeyError):
            return text

    def _record(self) -> None:
        """Record the archive that makes Spark's next start quick.

        Called after the first batch, which it would have delayed.
        """
        if self._recorded:
            return
        self._recorded = True
        archive = Archive.of(os.environ)
        if archive is not None and archive.wanted(os.environ):
            self.told(
                "Spark's classes are recorded, once, at the lowest priority, so that it"
                f" starts quickly from now on: some 190 MB in {archive.path.parent}"
            )
            self._recording.start()

    def _noticed(self, lines: list[str]) -> None:
        if "READY=1" in lines:
            self._daemon.up()
        if "WATCHDOG=1" in lines:
            self._daemon.heard()

    def told(self, text: str) -> None:
        self._carefully(self._log.line, text)

    def over(self, kept: Kept) -> None:
        if kept is not self._recording:
            if kept.failed and not self.status:
                self.status = 1
            if not self._stopping:
                self._stop()
        every = (*self._kepts, self._recording)
        if self._stopping and all(each.state is State.OVER for each in every):
            if not self.status:
                self.told("stopped; gateway run goes on from here")
            self._reactor.callLater(0, self._reactor.stop)

    # -- what is shown -----------------------------------------------------------------

    def _look(self) -> None:
        if nobody_reads():
            raise BrokenPipeError
        self._hear_the_job()
        for each in self._kepts:
            each.look()
        if not self._log.has_state:
            return
        self._log.state(
            " · ".join(filter(None, [*map(self._how, self._kepts), self._said]))
        )
        if self._asking is None and self._daemon.state is State.UP:
            self._asking = deferToThread(self._sentence).addBoth(self._answered)

    def _hear_the_job(self) -> None:
        if self._job is not None:
            told = Told.of(self._config.data_dir / "lake", time.time()).report.words
            if self._job_told and told.get("at") != self._job_told.get("at"):
                self._job.heard()
            self._job_told = told

    def _answered(self, said: str | Failure) -> None:
        self._asking = None
        self._said = said if isinstance(said, str) else ""

    def _how(self, kept: Kept) -> str:
        doing = ""
        if kept is self._job and kept.state is State.STARTING:
            words = self._job_told.get("doing")
            doing = f" ({words})" if words else ""
        return f"{kept.name} {kept.state.value}{doing}"


class _Notices(DatagramProtocol):
    """The daemon's notices to systemd: sd_notify(3)."""

    def __init__(self, heard: Callable[[list[str]], None]) -> None:
        self._heard = heard

    def datagramReceived(self, datagram: bytes, addr: object) -> None:
        self._heard(datagram.decode(errors="replace").splitlines())
