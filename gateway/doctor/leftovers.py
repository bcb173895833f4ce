"""Looks for journals of other nodes: the host was renamed, or `node` was.

A start publishes the events of such a node, if it ran on this data directory
(`gateway.store.node.orphans`), but not those of another machine in a shared journal.
"""

from __future__ import annotations

from collections.abc import Iterator

from gateway.config import Config
from gateway.doctor.look import Look, fail, ok, warn
from gateway.store.directories import Directories
from gateway.store.finder import segment_files, waiting
from gateway.store.names import is_node_name
from gateway.store.system.lock import is_locked


def examine(config: Config) -> Iterator[Look]:
    places = Directories.of(config)
    found = False
    try:
        directories = sorted(places.journal.iterdir())
    except FileNotFoundError:
        directories = []
    for journal in directories:
        name = journal.name
        if name == config.node or not is_node_name(name) or not journal.is_dir():
            continue
        if is_locked(journal) or not segment_files(journal):
            continue
        events = sum(count for *_, count in waiting(journal))
        found = True
        left = f"node {name} left {events} acknowledged events in {journal}"
        keep = f"set node: {name} to keep its name and what it remembers"
        if not events:
            yield warn("journals", f"{left}, and what it remembers", keep)
        elif places.state_of(name).is_dir():
            text = f"the next start publishes them as its own; {keep}"
            yield warn("journals", left, text)
        else:
            yield fail("journals", left, f"start the gateway of node {name} there")
    if not found:
        yield ok("journals", "each has a node that serves it")
