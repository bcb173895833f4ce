"""`gateway run`: the daemon and the Spark job, in one command that keeps both running."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import re
import shlex
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gateway import DEFAULT_CONFIGS, default_config
from gateway.cli import _admin, init
from gateway.cli._config import add_config
from gateway.plugins import examples, installed
from gateway.sdk.command import WrongUse
from gateway.sdk.endpoint import Tcp

if TYPE_CHECKING:
    from gateway.config import Config
    from gateway.supervisor.log import Log
    from gateway.supervisor.together import Together

_FIRST, _SECOND = examples()
HELP = f"""\
Run the daemon and the Spark job on this machine, with one log in which each line says whose
it is.  ^C stops both cleanly; one that dies is started again, and the reason said.  On a
terminal the line below the log says how both are.

Where there is no configuration it writes one, gateway.yaml in the folder that you are in:
the protocols that you name, or {_FIRST}, on {init.LOOPBACK}, the others as comments, and all
data beside it.  Other commands find it there.

Example:
  gateway run                               and in another terminal:  gateway table
  gateway run {_FIRST} {_SECOND}
  gateway run --config /etc/gateway/gateway.yaml

Needs Spark: pip install 'gateway[spark]'.  With spool.after: keep there is no job, and the
daemon runs alone.  For a machine that starts it by itself: gateway init … --systemd

Exit status: 0 it was stopped; 1 the daemon can not start, or had to be killed; 2 wrong use.
"""

_FILE = Path(DEFAULT_CONFIGS[0])
_KEPT = "gateway-data"
_ADMIN_PORTS = (8080, *range(8082, 8100))
"""8081 is the job's."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "protocols", nargs="*", metavar="PROTOCOL",
        help="what to speak, where there is no configuration yet: "
        f"{', '.join(installed().protocols)} (default: {_FIRST})",
    )  # fmt: skip
    add_config(parser, more="; if there is none, it is written")


def run(args: argparse.Namespace) -> int:
    from gateway import config
    from gateway.store.system.lock import Locked, holder, lock
    from gateway.supervisor.log import Log

    installed().check(args.protocols)
    file = Path(args.config or default_config())
    told = []
    if args.config is None and not file.exists():
        file = _FILE
        told = list(_write_own(file, args.protocols or [_FIRST]))
    elif args.protocols:
        raise WrongUse(
            f"{file} says which protocols are spoken: add {args.protocols[0]} to its"
            " listeners, and run it without naming one"
        )
    loaded = config.load(file)
    if loaded.spool.has_job:
        _check_spark(loaded)
    held = None
    try:
        held = lock(loaded.data_dir / "run" / "lock", "gateway run")
        for one in (loaded.data_dir, loaded.data_dir / "lake" / ".gateway"):
            if (who := holder(one / "lock")) is not None:
                raise WrongUse(f"{who}: end that first")
        out = open(1, "wb", buffering=0, closefd=False)  # noqa: SIM115
        log = Log(out, as_json=loaded.logging.format == "json")
        both = _both(loaded, file, log)
        for line in (*told, *_next(loaded, file)):
            log.line(line)
        return both.run()
    except Locked as why:
        raise WrongUse(f"{why}: it runs already") from None
    except BrokenPipeError:
        raise
    except OSError as why:
        text = f"{why.filename or loaded.data_dir}: {why.strerror or why}"
        if isinstance(why, PermissionError):
            text += (
                "; run this as the user that owns data_dir, or name another one there"
            )
        raise WrongUse(text) from None
    finally:
        if held is not None:
            held.release()


def _both(loaded: Config, file: Path, log: Log) -> Together:
    from gateway.supervisor.together import Together

    def sentence() -> str:
        none = argparse.Namespace(ca=None, cert=None, key=None)
        return str(
            _admin.port_of(file, loaded.admin, none).status().get("sentence", "")
        )

    return Together(loaded, file.absolute(), log, sentence)


def _check_spark(loaded: Config) -> None:
    """Raise `WrongUse` if no job can start here, whatever it is to do."""
    from gateway.sink import kind_of

    extra = kind_of(loaded.spark.sink).extra
    alone = "; or set spool.after: keep, and the daemon runs without tables"
    if importlib.util.find_spec("pyspark") is None:
        raise WrongUse(
            "the tables need Spark, which is not installed: pip install"
            f" 'gateway[{extra}]'{alone}"
        )
    from gateway.spark.jvm import java

    try:
        java.find(os.environ)
    except java.NoJava as why:
        raise WrongUse(f"{why}{alone}") from None


def _write_own(file: Path, protocols: Sequence[str]) -> Iterator[str]:
    """A configuration of those whose ports are free here; says what it is."""
    listeners, gone = [], []
    for name in dict.fromkeys(protocols):
        made = init.listener(name, init.LOOPBACK)
        if taken := [port for port in init.ports(made) if not _free(int(port))]:
            gone += taken
            yield f"{name} is left out: port {taken[0]} of {init.LOOPBACK} is taken"
            continue
        listeners.append(made)
    if not listeners:
        raise WrongUse(
            f"all ports are taken here ({', '.join(gone)}), maybe by another gateway:"
            " stop that, or change the ports in what gateway init PROTOCOL writes"
        )
    admin = next(filter(_free, _ADMIN_PORTS), _ADMIN_PORTS[0])
    from gateway.config.fields import default_node

    settings = {
        "node": default_node(),
        "data_dir": _KEPT,
        "listeners": listeners,
        "admin": {"listen": f"tcp:{init.LOOPBACK}:{admin}"},
    }
    try:
        others = [
            init.listener(name, init.LOOPBACK)
            for name in installed().protocols
            if name not in protocols
        ]
        init.write(file, init.configuration(settings, others))
    except OSError as why:
        raise WrongUse(
            f"no configuration here, and none can be written: {file.absolute()}:"
            f" {why.strerror}"
        ) from None
    where = ", ".join(f"{one['name']} {_port(one)}" for one in listeners)
    yield f"{file.absolute()} written, as there was none; all data goes to {_KEPT} beside it"
    yield f"Only this machine is listened to: {where}"


def _port(listener: dict[str, Any]) -> str:
    return re.sub("^tcp:", "", str(listener["listen"]))


def _next(loaded: Config, file: Path) -> Iterator[str]:
    """The first lines: commands and pages that are of use now."""
    typed = shlex.quote(str(file))
    named = "" if str(file) == default_config() else f" --config {typed}"
    yield (
        f"{file}: node {loaded.node}; ^C stops. In another terminal:"
        f" gateway table{named}, gateway status{named}"
    )
    if isinstance(where := loaded.admin.listen, Tcp):
        scheme = "http" if loaded.admin.tls is None else "https"
        host = "localhost" if where.host in ("", "0.0.0.0", "::") else where.host  # noqa: S104
        host = f"[{host}]" if ":" in host else host
        yield f"The live page: {scheme}://{host}:{where.port}/"


def _free(port: int) -> bool:
    with contextlib.closing(socket.socket()) as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind((init.LOOPBACK, port))
        except OSError:
            return False
    return True
