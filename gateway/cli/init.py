"""`gateway init`: writes a commented configuration, and what starts the processes."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from gateway import __version__
from gateway.plugins import RAISED, examples, failure, installed
from gateway.sdk.command import WrongUse

one, two = examples()
HELP = f"""\
Write a configuration for the protocols that you name: gateway.yaml, with every key, its
meaning and its default as comments.  Nothing that is there is overwritten.

  --systemd   also units for the daemon and the Spark job.  They find the programs of
              this Python environment, and the configuration in /etc/gateway
  --compose   also a compose.yaml with both as containers, of images that `docker build`
              makes of the source; what is kept lies in a volume, or in --data-dir.  The
              page and the metrics are there for this machine, and ask for a token

Both are for others to connect to: all addresses are listened to, with --certificate and
--key by TLS.

Example:
  gateway init {one}
  gateway init {one} {two} --directory first
  gateway init {one} --systemd --node gw-1 --certificate gw.pem --key gw.key
  gateway init {one} --compose --data-dir /srv/gateway

Exit status: 0 written; 2 wrong use, or something is there already.
"""

_STATE = "/var/lib/gateway"
LOOPBACK = "127.0.0.1"
_COMPOSE = """\
# The daemon and its Spark job.  The images come from the source:
#   docker build -t gateway:{version} .
#   docker build -t gateway-spark:{version} --target spark .
#
#   echo "GATEWAY_ADMIN_TOKEN=$(openssl rand -hex 16)" > .env
#   docker compose up --detach --wait
#
# The page:      http://127.0.0.1:8080/        (any user name, the token as the password)
# Metrics:       http://127.0.0.1:8080/metrics, and alerts for them in conf/alerts.yml
# What arrived:  docker compose exec spark gateway table --config /etc/gateway/gateway.yaml
# The proof:     docker compose exec spark gateway audit --config /etc/gateway/gateway.yaml
x-settings: &settings
  environment:
    GATEWAY_ADMIN_TOKEN: "${{GATEWAY_ADMIN_TOKEN:?is what the page asks for; write it to .env, as compose.yaml says}}"
  volumes:
    - {kept}:{state}
    - ./gateway.yaml:/etc/gateway/gateway.yaml:ro{mounts}
  # Longer than it takes to answer and publish what was taken.
  stop_grace_period: 60s
  restart: unless-stopped
  user: "{owner}:{owner}"
  cap_drop: [ALL]
  security_opt: ["no-new-privileges:true"]

services:
  gateway:
    image: gateway:{version}
    <<: *settings
    hostname: "{node}"
    # Those of the listeners in gateway.yaml, and the page for this machine only.
    ports: {ports}
  spark:
    image: gateway-spark:{version}
    <<: *settings
    depends_on:
      gateway: {{condition: service_healthy}}
"""
_VOLUME = """\
volumes:
  data:
"""
_TOKEN = "GATEWAY_ADMIN_TOKEN"  # noqa: S105 - a name
_CERTIFICATE, _KEY = "/etc/gateway/tls.crt", "/etc/gateway/tls.key"
"""Paths in containers."""
_HOMES = ("/home", "/root", "/run/user")
"""Folders that ProtectHome=yes hides from a service."""
_ADMIN_PORT = 8080
_OWNER = 10001
"""The user of the images, as in the Dockerfile."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    known = tuple(installed().protocols)
    parser.add_argument(
        "protocols", nargs="+", metavar="PROTOCOL",
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
        help=f"listen on all addresses (default: {LOOPBACK} only, but with --systemd or "
        "--compose)")  # fmt: skip
    add("--certificate", type=Path, metavar="PEM", help="of all listeners: TLS")
    add("--key", type=Path, metavar="PEM", help="the private key of --certificate")
    add("--systemd", action="store_true", help="write units for systemd, too")
    add("--compose", action="store_true", help="write a compose.yaml, too")


def run(args: argparse.Namespace) -> int:
    installed().check(args.protocols)
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
    mounted = filter(None, (args.data_dir, args.certificate, args.key))
    if args.compose and (odd := [one for one in mounted if ":" in str(one)]):
        raise WrongUse(f"{odd[0]}: no path with a colon can be mounted (--compose)")
    if (args.certificate is None) is not (args.key is None):
        raise WrongUse("--certificate and --key need each other")
    for path in filter(None, (args.certificate, args.key)):
        if not path.is_file():
            raise WrongUse(f"no such file: {path}")
    files = dict(_files(args))
    there = [name for name in files if (folder / name).exists()]
    if there:
        raise WrongUse(f"{folder / there[0]} is there already; it is left as it is")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            write(folder / name, text, _stand_ins(args))
    except OSError as why:
        raise WrongUse(f"{why.filename or folder}: {why.strerror}") from None
    for name in files:
        print(f"{folder / name} written")
    print("\n".join(_next(args, folder / "gateway.yaml")))
    return 0


def _who_may_come(args: argparse.Namespace) -> str:
    if args.certificate is not None:
        return (
            "All IPv4 addresses are listened to, by TLS; whoever reaches them may send, unless"
            " tls.client_auth or the protocol's options ask who it is: docs/security.md"
        )
    return (
        "All IPv4 addresses are listened to, without TLS, and whoever reaches them may send:"
        " --certificate and --key encrypt, tls.client_auth and the protocol's options ask"
        " who it is: docs/security.md"
    )


def write(path: Path, text: str, stands_for: Mapping[str, str] | None = None) -> None:
    """Write a file once and whole; a configuration must be valid with what *stands_for* its values."""
    with path.open("x", encoding="utf-8") as new:
        try:
            new.write(text)
            new.flush()
        except OSError:  # a full disk: what is not whole would be in the way
            path.unlink()
            raise
    if path.name != "gateway.yaml":
        return
    from gateway import config

    tried = text
    for there, here in (stands_for or {}).items():
        tried = tried.replace(there, here)
    path.write_text(tried, "utf-8")
    try:
        config.load(path)
    except config.Invalid:
        path.unlink()
        raise
    path.write_text(text, "utf-8")


def _stand_ins(args: argparse.Namespace) -> dict[str, str]:
    """Files and words of this machine in place of paths and secrets in containers."""
    if not args.compose:
        return {}
    found = {f"${{env:{_TOKEN}}}": "a token"}
    if args.certificate is not None:
        found |= {_CERTIFICATE: str(args.certificate.absolute())}
        found |= {_KEY: str(args.key.absolute())}
    return found


def _files(args: argparse.Namespace) -> Iterator[tuple[str, str]]:
    settings = _settings(args)
    yield "gateway.yaml", configuration(settings)
    if args.systemd:
        for template in templates().iterdir():
            if template.name.endswith(".service"):
                yield template.name, _unit(template.read_text("utf-8"), args)
    if args.compose:
        opened = [f"{port}:{port}" for port in ports(settings["listeners"])]
        opened.append(f"{LOOPBACK}:{_ADMIN_PORT}:{_ADMIN_PORT}")
        text = _COMPOSE.format(
            version=__version__,
            node=settings["node"],
            ports="[" + ", ".join(f'"{each}"' for each in opened) + "]",
            kept=(args.data_dir or "data").replace("$", "$$"),
            state=_STATE,
            owner=_OWNER,
            mounts=_mounts(args),
        )
        yield "compose.yaml", text if args.data_dir else text + _VOLUME


def configuration(
    settings: dict[str, Any], more: Sequence[Mapping[str, Any]] = ()
) -> str:
    """The text of a file that says these, and shows every other key, and *more* listeners."""
    from gateway.config.commented import commented

    limits = {name: each.limits for name, each in installed().protocols.items()}
    return commented(settings, limits, more)


def templates() -> Traversable:
    """The folder `conf`: in the wheel beside the code, in a clone beside `gateway/`."""
    inside = resources.files("gateway") / "conf"
    return inside if inside.is_dir() else Path(__file__).parents[2] / "conf"


def _settings(args: argparse.Namespace) -> dict[str, Any]:
    from gateway.config.fields import default_node

    host = "" if args.all_addresses or args.systemd or args.compose else LOOPBACK
    kept = _STATE if args.systemd or args.compose else "data"
    listeners = [listener(name, host) for name in dict.fromkeys(args.protocols)]
    if args.certificate is not None:
        pair = args.certificate.absolute(), args.key.absolute()
        files = (_CERTIFICATE, _KEY) if args.compose else map(str, pair)
        tls = dict(zip(("certificate", "private_key"), files, strict=True))
        listeners = [{**one, "tls": tls} for one in listeners]
    admin = {"listen": f"tcp:{LOOPBACK}:{_ADMIN_PORT}"}
    if args.compose:
        # Others can reach a container's address.
        admin = {"listen": f"tcp:0.0.0.0:{_ADMIN_PORT}", "token": f"${{env:{_TOKEN}}}"}
    return {
        "node": args.node or default_node(),
        "data_dir": kept if args.compose else args.data_dir or kept,
        "listeners": listeners,
        "admin": admin,
    }


def _mounts(args: argparse.Namespace) -> str:
    """Further mounts of the containers, as lines of the list."""
    if args.certificate is None:
        return ""
    pairs = (args.certificate, _CERTIFICATE), (args.key, _KEY)
    return "".join(
        f"\n    - {str(one.absolute()).replace('$', '$$')}:{there}:ro"
        for one, there in pairs
    )


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
    """The unit, with this environment's programs and the wanted directory."""
    programs, needed = Path(sys.executable).parent, []
    text = text.replace(
        ", in a clone of the source:", ", in the folder with these files:"
    )
    text = text.replace("conf/gateway", "gateway")
    if (programs / "gateway").exists():
        text = re.sub("#   (apt-get|python3 -m venv) .*\n", "", text)
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
    made, typed = (shlex.quote(str(one)) for one in (args.data_dir, file))
    yield ""
    if args.systemd or args.compose:
        yield _who_may_come(args)
    if args.compose:
        yield "Next: compose.yaml says how to build the images, and to make the page's token"
        if args.data_dir is not None:
            yield f"Before that, once: install -d -o {_OWNER} -g {_OWNER} {made}"
        if not file.stat().st_mode & stat.S_IROTH:
            yield f"The containers run as {_OWNER}, who may not read {file}: chmod a+r it,"
            yield f"or, with secrets in it, chown it to {_OWNER}"
        return
    if args.systemd:
        yield "Next: the first lines of gateway.service, as root, in the folder with these files"
        if args.data_dir is not None:
            yield f"Before that, once: install -d -o gateway -g gateway {made}"
        yield "Sockets that stay over a restart: docs/reload.md, conf/gateway.socket"
        return
    yield "Next, each in a terminal of its own:"
    yield f"  gateway run --config {typed}"
    first = args.protocols[0]
    if dict(installed().each("sender")).get(first) is not None:
        yield f"  gateway send {first} --help"
    yield f"  gateway table --config {typed}"
