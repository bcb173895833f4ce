"""The options `--config` and `--data-dir`: whose directories a command looks into."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gateway import default_config
from gateway.cli._config import add_config
from gateway.sdk.command import WrongUse, located

if TYPE_CHECKING:
    from gateway.audit.sites import Site
    from gateway.config import Config
    from gateway.store.directories import Directories


def add_arguments(
    parser: argparse.ArgumentParser, *, several: bool = False, default: Any = None
) -> None:
    """Add the two options, which exclude each other; *several*: each more than once, for
    `each`.  *default* is what they are where they are not said.
    """
    where = parser.add_mutually_exclusive_group()
    more: dict[str, Any] = {"action": "append"} if several else {}
    more["default"] = default
    again = "; again for more of them" if several else ""
    add_config(where, more=again, **more)
    where.add_argument(
        "--data-dir",
        metavar="DIR",
        type=Path,
        help=f"its data_dir, if the directories in it have their default names{again}",
        **more,
    )


def each(args: argparse.Namespace) -> list[argparse.Namespace]:
    """Arguments for each directory that is named, or for the default, one by one."""
    found = [argparse.Namespace(config=one, data_dir=None) for one in args.config or ()]
    found += [
        argparse.Namespace(config=None, data_dir=one) for one in args.data_dir or ()
    ]
    return found or [argparse.Namespace(config=None, data_dir=None)]


def config_of(args: argparse.Namespace) -> Config | None:
    """The configuration; None if only a directory was named."""
    from gateway.config import load

    return None if args.data_dir else load(args.config or default_config())


def sites(args: argparse.Namespace) -> list[Site]:
    """All that are named, in their order.  Raises `WrongUse` where all are edges'."""
    named = each(args)
    edges = [one.forward for one in map(config_of, named) if one and one.forward]
    if len(edges) == len(named):
        hubs = dict.fromkeys(hub for one in edges for hub in one.hubs)
        raise WrongUse(
            f"the tables with its events are at the hub, {' or '.join(hubs)}: run the audit"
            " there, with --gateway and this one's admin port"
        )
    return [site(one) for one in named]


def site(args: argparse.Namespace) -> Site:
    """All that an audit needs to know of it.  Raises `WrongUse`, OSError."""
    from gateway.audit.remote import access_of
    from gateway.audit.sites import Site
    from gateway.store.objects.s3 import bucket_of

    found, config = places(args), config_of(args)
    if config is None:
        return Site(found)
    return Site(
        found,
        config.node,
        bucket_of(config.spool),
        access_of(config),
        keeps=config.spool.after == "keep",
        forwards=config.forward is not None,
    )


def places(args: argparse.Namespace) -> Directories:
    """The directories, at least one of which is there.  Raises `WrongUse`."""
    from gateway.store.directories import Directories

    if (config := config_of(args)) is None:
        found, root = Directories.under(args.data_dir), args.data_dir
        key = f"--data-dir {root}"
    else:
        found, root = Directories.of(config), config.data_dir
        key = f"{args.config or default_config()}: data_dir: {root}"
    if not root.exists():
        raise WrongUse(f"{key}: no such directory")
    if not root.is_dir():
        raise WrongUse(f"{key}: not a directory")
    if not any(p.exists() for p in (found.journal, found.spool, found.lake)):
        raise WrongUse(
            f"{key}: neither journal nor spool nor lake in it; "
            "is it the data_dir of a gateway that has run?"
        )
    return found


@contextlib.contextmanager
def readable() -> Iterator[None]:
    """Turn errors of reading inside into one sentence (`WrongUse`)."""
    try:
        yield
    except BrokenPipeError:
        raise
    except PermissionError as why:
        raise WrongUse(
            f"{why.filename or why}: permission denied; "
            "run this as the user that owns data_dir, or as root"
        ) from None
    except OSError as why:
        raise WrongUse(located(why)) from None
