"""The parts of `gateway audit` that look at digests: `--chain`, `--content`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

from gateway.audit.chain import Chain, verify_chains
from gateway.audit.content import find_resent
from gateway.audit.lake import Problem
from gateway.audit.payloads import compare_payloads
from gateway.audit.sites import Site
from gateway.spoken import many
from gateway.store.directories import Directories
from gateway.store.lsns import spelled


@dataclass(slots=True)
class Part:
    """The result of one check."""

    name: str
    """The key in the JSON output."""
    plain: dict[str, Any]
    """The value in the JSON output."""
    lines: list[str]
    """The lines for people."""
    fault: str = ""
    """Why it is not complete, in a few words."""


def chain(
    places: Directories,
    *,
    node: str | None,
    first: int,
    links: Iterable[str],
    deleting: bool,
) -> Part:
    """Whether spool files were removed, exchanged or changed."""
    found = verify_chains(
        places, node=node, first=first, links=links, deleting=deleting
    )
    lines = [line for one in found.chains for line in _lines(one)]
    if not found.chains:
        lines.append(
            "note: no chain was verified: neither spool files nor a journal are here;"
            " run it at each gateway"
        )
    lines += [f"problem: link {link} is in no chain" for link in found.unknown]
    broken = [one.node for one in found.chains if one.problems]
    faults = [f"the chain of {', '.join(broken)} is broken"] if broken else []
    faults += [f"{len(found.unknown)} links are in no chain"] if found.unknown else []
    plain = {
        "whole": found.whole,
        "unknown_links": found.unknown,
        "nodes": list(map(asdict, found.chains)),
    }
    return Part("chain", plain, lines, "; ".join(faults))


def _lines(one: Chain) -> Iterable[str]:
    for note in one.notes:
        yield f"note: chain of {one.node}: {note}"
    yield from map(_told, one.problems)
    if not one.files:
        yield f"chain: {one.node}: no file is there"
    else:
        span = spelled(one.first, one.last) if one.first else f"lsn ? to {one.last}"
        yield f"chain: {one.node}: {many(one.files, 'file')}, {span}, link {one.link}"


def content(site: Site, node: str | None) -> Part:
    """Events that a sender sent twice: no fault of the gateway."""
    found = find_resent(site.directories.lake, node=node, access=site.access)
    told = (
        f"note: {found.copies} of {found.placed} events that name their place in a file"
        " are there again: their sender sent them again"
    )
    lines = [
        *map(_told, found.problems),
        *(f"resent: {one}" for one in found.examples),
        told,
    ]
    if found.vanished:
        lines.append(
            f"note: {len(found.vanished)} files of the tables were not searched for such events:"
            " they were gone when they were read (compacted?); run it again"
        )
    plain = {**asdict(replace(found, vanished=set())), "vanished": len(found.vanished)}
    return Part("content", plain, lines)


def payloads(site: Site, node: str | None) -> Part:
    """Whether archive and tables have the payloads that were published."""
    found = compare_payloads(site, node=node)
    told = (
        f"payloads: {many(found.archived, 'file')} of the archive read; the tables have the"
        f" {many(found.events, 'payload')} of {many(found.in_tables, 'file')} as published"
    )
    lines = [*map(_told, found.problems), told]
    if found.unknown:
        lines.append(
            f"note: the rows of {found.unknown} files can not be compared: their file has"
            " no digest, or body is VARIANT"
        )
    if found.passed_over:
        lines.append(
            f"note: {many(found.passed_over, 'file')} of which the tables do not have each"
            " event once can not be compared: neither spool nor archive has them any more"
        )
    if found.vanished:
        lines.append(
            f"note: {found.vanished} files of the tables were gone when they were read"
            " (compacted?): run it again"
        )
    if found.uncompared:
        lines.append(
            f"note: {found.uncompared} events in the tables are compared with nothing:"
            " archive, spool and catalog have no digest of their files, or they are told"
            " above"
        )
    count = len(found.problems)
    fault = f"{many(count, 'file')} with other payloads, or unreadable" if count else ""
    return Part("payloads", asdict(found), lines, fault)


def _told(problem: Problem) -> str:
    return f"problem: {problem.file}: {problem.why}"
