"""`gateway init`: writes a commented configuration, and what starts the processes."""

from __future__ import annotations

import argparse
import os
import re
import stat
import sys
from collections.abc import Iterator
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from gateway import __version__
from gateway.plugins import RAISED, examples, failure, installed
from gateway.sdk.command import WrongUse

__all__ = [
    "HELP",
    "LOOPBACK",
    "add_arguments",
    "configuration",
    "listener",
    "ports",
    "run",
    "write",
]

one, two = examples()
HELP = f"""\
Write a configuration for the protocols that you name: gateway.yaml, with every key, its
meaning and its default as comments.  Nothing that is there is overwritten.

  --systemd   also units for the daemon and the Spark job.  They find the programs of
              this Python environment, and the configuration in /etc/gateway
  --compose   also a compose.yaml with both as containers, of images that `docker build`
              makes of the source; what is kept lies in a volume, or in --data-dir

Example:
  gateway init {one}
  gateway init {one} {two} --directory first
  gateway init {one} --systemd --node gw-1
  gateway init {one} --compose --data-dir /srv/gateway

Exit status: 0 written; 2 wrong use, or something is there already.
"""

_STATE = "/var/lib/gateway"
LOOPBACK = "127.0.0.1"
_COMPOSE = """\
# docker compose up -d: the daemon and its Spark job.  The images come from the source:
#   docker build -t gateway:{version} .
#   docker build -t gateway-spark:{version} --target spark .
#
# What arrived:  docker compose exec spark gateway table --config /etc/gateway/gateway.yaml
# The proof:     docker compose exec spark gateway audit --config /etc/gateway/gateway.yaml
services:
  gateway:
    image: gateway:{version}
    hostname: {node}
    # Those of the listeners in gateway.yaml.
    ports: {ports}
    volumes: &volumes
      - {kept}:{state}
      - ./gateway.yaml:/etc/gateway/gateway.yaml:ro
    # Longer than it takes to answer and publish what was taken.
    stop_grace_period: 60s
    restart: unless-stopped
  spark:
    image: gateway-spark:{version}
    volumes: *volumes
    depends_on:
      gateway: {{condition: service_healthy}}
    stop_grace_period: 60s
    restart: unless-stopped
"""
_VOLUME = """\
volumes:
  data:
"""
_HOMES = ("/home", "/root", "/run/user")
"""What ProtectHome=yes hides from a service."""
_OWNER = 10001
"""Whom the images run as; the Dockerfile says so."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `gateway.cli`."""
    known = tuple(installed().protocols)
    parser.add_argument(
        "protocols", nargs="+", metavar="PROTOCOL", choices=known,
        help=f"{', '.join(known)}",
    )  # fmt: skip
    add = parser.add_argument
    add("--directory", type=Path, default=Path(), metavar="DIR",
        help="where to write; it is made (default: here)")  # fmt: skip
    add("--node", metavar="NAME",
        help="this gateway's name in every event, for ever (default: the host name)")  # fmt: skip
    add("--data-dir", metavar="DIR",
        help="where all that is kept lies; what is relative is beside the file (default: "
        f"data; with --systemd {_STATE}; with --compose a volume: a DIR of this machine is "
        f"mounted as {_STATE} in its place)")  # fmt: skip
    add("--all-addresses", action="store_true",
        help=f"listen on all addresses (default: {LOOPBACK} only, but with --compose)")  # fmt: skip
    add("--systemd", action="store_true", help="write units for systemd, too")
    add("--compose", action="store_true", help="write a compose.yaml, too")


def run(args: argparse.Namespace) -> int:
    """See `gateway.cli`."""
    folder: Path = args.directory
    if args.compose and args.data_dir is not None and args.systemd:
        raise WrongUse(
            f"--data-dir is {_STATE} in containers and itself for systemd: write "
            "one of --systemd and --compose at a time"
        )
    if args.data_dir is not None and not Path(args.data_dir).is_absolute():
        for form in ("compose", "systemd"):
            if getattr(args, form):
                raise WrongUse(
                    f"--data-dir {args.data_dir}: with --{form}, say all of it"
                )
    files = dict(_files(args))
    there = [name for name in files if (folder / name).exists()]
    if there:
        raise WrongUse(f"{folder / there[0]} is there already; it is left as it is")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            write(folder / name, text)
    except OSError as why:
        raise WrongUse(f"{why.filename or folder}: {why.strerror}") from None
    for name in files:
        print(f"{folder / name} written")
    print("\n".join(_next(args, folder / "gateway.yaml")))
    return 0


def write(path: Path, text: str) -> None:
    """Once and whole; a configuration only if it is one."""
    from gateway import config

    with path.open("x", encoding="utf-8") as new:
        new.write(text)
    if path.name != "gateway.yaml":
        return
    try:
        config.load(path)
    except config.Invalid:
        path.unlink()
        raise


def _files(args: argparse.Namespace) -> Iterator[tuple[str, str]]:
    settings = _settings(args)
    yield "gateway.yaml", configuration(settings)
    if args.systemd:
        for template in templates().iterdir():
            if template.name.endswith(".service"):
                yield template.name, _unit(template.read_text("utf-8"), args)
    if args.compose:
        opened = [f"{port}:{port}" for port in ports(settings["listeners"])]
        text = _COMPOSE.format(
            version=__version__,
            node=settings["node"],
            ports="[" + ", ".join(f'"{each}"' for each in opened) + "]",
            kept=args.data_dir or "data",
            state=_STATE,
        )
        yield "compose.yaml", text if args.data_dir else text + _VOLUME


def configuration(settings: dict[str, Any]) -> str:
    """The text of a file that says these, and shows every other key."""
    from gateway.config.commented import commented

    limits = {name: each.limits for name, each in installed().protocols.items()}
    return commented(settings, limits)


def templates() -> Traversable:
    """The folder `conf`: in the wheel beside the code, in a clone beside `gateway/`."""
    inside = resources.files("gateway") / "conf"
    return inside if inside.is_dir() else Path(__file__).parents[2] / "conf"


def _settings(args: argparse.Namespace) -> dict[str, Any]:
    """What is not left to the defaults."""
    from gateway.config.fields import default_node

    host = "" if args.all_addresses or args.compose else LOOPBACK
    kept = _STATE if args.systemd or args.compose else "data"
    return {
        "node": args.node or default_node(),
        "data_dir": kept if args.compose else args.data_dir or kept,
        "listeners": [listener(name, host) for name in dict.fromkeys(args.protocols)],
        "admin": {"listen": f"tcp:{LOOPBACK}:8080"},
    }


def listener(protocol: str, host: str) -> dict[str, Any]:
    """One of that protocol at *host*, to begin with.  Raises `WrongUse`."""
    try:
        starter = dict(installed().protocols[protocol].starter(host))
    except RAISED as why:
        raise WrongUse(failure(protocol, "starter", why)) from why
    return {"name": starter.pop("name", protocol), "protocol": protocol, **starter}


def ports(value: Any) -> Iterator[str]:
    """The TCP ports in it, as they are written: `tcp:5044`, `tcp:127.0.0.1:5044`."""
    match value:
        case dict():
            for each in value.values():
                yield from ports(each)
        case list():
            for each in value:
                yield from ports(each)
        case str() if found := re.fullmatch(r"tcp:(?:.*:)?(\d+)", value):
            yield found[1]


def _unit(text: str, args: argparse.Namespace) -> str:
    """With the programs of this environment, and the directory that was asked for."""
    programs, needed = Path(sys.executable).parent, []
    if (programs / "gateway").exists():
        text = text.replace("/opt/gateway/bin/", f"{programs}{os.sep}")
        needed += [programs, Path(sys.base_prefix)]
    if args.data_dir is not None:
        needed.append(Path(args.data_dir))
        spelled = args.data_dir.replace("%", "%%")
        if " " in spelled:
            spelled = f'"{spelled}"'
        strict = "ProtectSystem=strict\n"
        text = text.replace(strict, f"{strict}ReadWritePaths={spelled}\n")
    if any(path.is_relative_to(home) for path in needed for home in _HOMES):
        text = text.replace("ProtectHome=yes\n", "ProtectHome=read-only\n")
    return text


def _next(args: argparse.Namespace, file: Path) -> Iterator[str]:
    yield ""
    if args.compose:
        yield "Next: read compose.yaml, build the two images, docker compose up -d"
        if args.data_dir is not None:
            yield f"Before that, once: install -d -o {_OWNER} -g {_OWNER} {args.data_dir}"
        if not file.stat().st_mode & stat.S_IROTH:
            yield f"The containers run as {_OWNER}, who may not read {file}: chmod a+r it,"
            yield f"or, with secrets in it, chown it to {_OWNER}"
        return
    if args.systemd:
        yield "Next: copy gateway.yaml to /etc/gateway, the units to /etc/systemd/system;"
        yield "gateway.service says how to make the user, and how to start it."
        if args.data_dir is not None:
            yield f"Before that, once: install -d -o gateway -g gateway {args.data_dir}"
        yield "Sockets that stay over a restart: docs/reload.md, conf/gateway.socket"
        return
    yield "Next, each in a terminal of its own:"
    yield f"  gateway run --config {file}"
    first = args.protocols[0]
    if dict(installed().each("sender")).get(first) is not None:
        yield f"  gateway send {first} --help"
    yield f"  gateway table --config {file}"
