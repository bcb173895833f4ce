"""The start by twistd: the command line of `twistd gateway`, and the daemon made of it."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from twisted.application.service import IService
from twisted.logger import Logger
from twisted.python import usage

from gateway import DEFAULT_CONFIGS, config, default_config
from gateway.daemon import logs
from gateway.daemon.terminal import Terminal, leave
from gateway.standard import hold_descriptors
from gateway.store.directories import Directories
from gateway.store.journal.ahead import begin
from gateway.store.system.disk import RealDisk

_SWITCH_SECONDS = 0.0005
_STOPPING = "Stopping already: what was taken is answered and published first"


class Options(usage.Options):
    """`twistd gateway`'s command line."""

    synopsis = "[--config FILE] [--check-config]"
    optParameters = [  # noqa: RUF012, N815 - usage.Options' way
        [
            "config",
            "c",
            None,
            f"configuration file (default: {', or '.join(DEFAULT_CONFIGS)})",
        ],
        [
            "wait",
            "w",
            0.0,
            "seconds to wait for another daemon to leave data_dir",
            float,
        ],
    ]
    optFlags = [  # noqa: RUF012, N815
        ["check-config", None, "read the configuration, report, exit"],
    ]
    longdesc = "Example: twistd -n gateway --config conf/demo.yaml"

    def postOptions(self) -> None:
        """Read the configuration, so that a mistake in it is a usage error."""
        hold_descriptors()
        self["config"] = self["config"] or default_config()
        _leave_no_pid_file(self.parent)
        _be_who_starts(self.parent)
        try:
            self["loaded"] = config.load(Path(self["config"]))
        except config.Invalid as why:
            leave(str(why))
        if self["check-config"]:
            from gateway.daemon.dry import try_start

            try:
                try_start(self["loaded"], Path(self["config"]))
            except config.Invalid as why:
                leave(str(why))
            sys.stdout.write(f"{self['config']}: ok\n")
            sys.exit(0)


def _leave_no_pid_file(twistd: Any) -> None:
    """Write no twistd.pid in the foreground: the data directory's lock has the process.

    It would need a folder to write to, stay after a crash, and keep a second node of
    another data directory from starting in the same folder.
    """
    if twistd and twistd["nodaemon"] and twistd["pidfile"] == "twistd.pid":
        twistd["pidfile"] = ""


def _be_who_starts(twistd: Any) -> None:
    """Refuse twistd's options to become another user, which come too late.

    Files that recovery makes would belong to the user who started it.
    """
    if twistd and any(twistd[name] is not None for name in ("uid", "gid", "chroot")):
        leave(
            "gateway does not take --uid, --gid and --chroot: start it as the user that it "
            "is to be (User= of a unit, setpriv, su); AmbientCapabilities= of a unit "
            "gives it ports below 1024"
        )


def makeService(options: Options) -> IService:
    loaded: config.Config = options["loaded"]
    twistd = options.parent or {"nodaemon": True}
    disk = RealDisk()
    journal = Directories.of(loaded).journal_of(loaded.node)
    # Threads that read and decode hold the interpreter, or wait for it, no longer than this.
    sys.setswitchinterval(_SWITCH_SECONDS)
    reading = threading.Thread(target=begin, args=(journal,), daemon=True)
    reading.start()
    # The most of what is to be imported: the disk reads meanwhile.
    from twisted.internet import reactor

    from gateway.daemon.clock import make_monotonic
    from gateway.daemon.service import Gateway
    from gateway.net.twisted_internals import poll_plainly
    from gateway.sdk.arrow import leave_pandas_out

    refuse_uvloop(reactor)
    make_monotonic(reactor)
    poll_plainly(reactor)
    leave_pandas_out()
    root = logs.LoggingService(loaded.logging, options.parent)
    in_background = not twistd["nodaemon"]
    terminal = Terminal(in_background=in_background)
    path = Path(options["config"]).absolute()
    gateway = Gateway(
        loaded,
        reactor,
        disk,
        terminal,
        lambda: config.load(path),
        configure_log=root.configure,
        wait_seconds=options["wait"],
    )
    gateway.setServiceParent(root)
    # Before it is ready to, it would be ended by it.
    signal.signal(signal.SIGHUP, lambda *_: gateway.hang_up())
    reactor.callWhenRunning(_stop_once, reactor)
    if in_background:
        reading.join()  # who forks has no other thread
    service: IService = root
    return service


def _stop_once(reactor: Any) -> None:
    """Have the first SIGTERM or ^C stop the daemon, and others say that it is stopping.

    Twisted would log a traceback for each of them.
    """
    log = Logger()
    stopping = False

    def once(stop: Callable[..., object]) -> Callable[..., object]:
        def heard(number: int, frame: object) -> None:
            nonlocal stopping
            if stopping:
                reactor.callFromThread(log.info, _STOPPING)
            else:
                stopping = True
                stop(number, frame)

        return heard

    for number in (signal.SIGTERM, signal.SIGINT):
        stop = signal.getsignal(number)
        if callable(stop):
            signal.signal(number, once(stop))


def refuse_uvloop(reactor: Any) -> None:
    """Refuse uvloop: it does not report a peer that resets with data in flight."""
    from gateway.net.twisted_internals import event_loop

    if type(event_loop(reactor)).__module__.startswith("uvloop"):
        leave("gateway does not run on uvloop, which loses disconnects; use epoll")
