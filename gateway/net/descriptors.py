"""File descriptors: how many there are, and how many of them connections may take."""

from __future__ import annotations

import os
import resource

_DESCRIPTORS_WANTED = 1 << 20


def raise_descriptor_limit() -> int:
    """Lift this process's soft limit to its hard one; the limit that holds then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS_WANTED
    if hard != resource.RLIM_INFINITY:
        wanted = min(hard, wanted)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return soft


def next_descriptor() -> int:
    """The number that the next open file gets: the lowest free one."""
    descriptor = os.open(os.devnull, os.O_RDONLY)
    os.close(descriptor)
    return descriptor


def descriptor_ceiling() -> int:
    """The highest file descriptor that a connection may have.

    What is above is for the journal, the spool and the admin port: without it a flood
    of connections could stop the disk from taking what others sent.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return _DESCRIPTORS_WANTED
    return soft - _reserved(soft)


def admin_connections() -> int:
    """The connections that the admin port may have open.

    With those that are being closed they take half of what is reserved: the other half
    is for the journal and the spool.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    reserved = 1024 if soft == resource.RLIM_INFINITY else _reserved(soft)
    return max(1, reserved // 3)


def _reserved(soft: int) -> int:
    return min(soft // 2, max(64, min(1024, soft // 10)))
