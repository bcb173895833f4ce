"""Status messages to systemd: sd_notify(3), one datagram each.

Each function returns whether a message was sent; without systemd none is.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping


def ready(text: str = "") -> bool:
    """Start-up or a reload is done."""
    return _send("READY=1", *_status(text))


def reloading() -> bool:
    """The configuration is being read again; `ready` follows."""
    return _send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")


def stopping(text: str = "") -> bool:
    """No more events are accepted; those that were are being stored."""
    return _send("STOPPING=1", *_status(text))


def watchdog() -> bool:
    """The daemon is alive.  Due every `watchdog_seconds` at the latest."""
    return _send("WATCHDOG=1")


def watchdog_seconds(environ: Mapping[str, str] = os.environ) -> float | None:
    """Half of the unit's WatchdogSec=; None if it has none for this process."""
    if environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    micros = environ.get("WATCHDOG_USEC", "")
    return int(micros) / 2e6 if micros.isdecimal() and int(micros) else None


def _status(text: str) -> tuple[str, ...]:
    return (f"STATUS={' '.join(text.split())}",) if text else ()


def _send(*lines: str) -> bool:
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return False
    if address.startswith("@"):  # an abstract name
        address = "\0" + address[1:]
    kind = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
    try:
        with socket.socket(socket.AF_UNIX, kind) as out:
            out.sendto("\n".join(lines).encode(), address)
    except OSError:
        return False  # systemd is gone or busy: no reason for us to stop
    return True
