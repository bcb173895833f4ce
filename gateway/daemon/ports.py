"""The settings of each port of a listener, and names for its connections."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

from gateway import config
from gateway.sdk.protocol import Port


def settings_of(listener: config.Listener, port: Port) -> config.Listener:
    """The listener's settings, as they are for one of its ports."""
    change: dict[str, Any] = {"name": listener.name + port.suffix}
    if port.listen is not None:
        change["listen"] = port.listen
    if not port.websocket:
        change["websocket"] = None
    return listener.model_copy(update=change)


def session_names(begun: float) -> Callable[[], str]:
    """Names for connections that this node has never given before."""
    prefix = f"{int(begun * 1_000_000):x}"  # those of a lobby begin in one millisecond
    numbers = count(1)
    return lambda: f"{prefix}-{next(numbers)}"
