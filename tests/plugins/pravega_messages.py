"""The controller's messages by name, for tests that say what a client sends."""

from typing import Any

from gateway.protocols.pravega.controller import messages

__all__ = ["decode", "new"]


def new(name: str, /, **fields: Any) -> Any:
    """Make a message; messages in it may be dictionaries."""
    return getattr(messages, name)(**fields)


def decode(name: str, raw: bytes) -> Any:
    """Decode a message; raises `Undecodable`."""
    return messages.decode(getattr(messages, name), raw)
