"""Refusals: the reasons that a peer is told, and the log.

Of the standard library only: a client without the daemon takes it along.
"""

from __future__ import annotations

__all__ = ["Refusal"]


class Refusal(Exception):
    """A peer asked for what its protocol or our limits do not allow.

    The only exception that a `wire` or `session` module lets out.
    """

    def __init__(
        self,
        rule: str,
        *,
        limit: str | int | None = None,
        key: str | None = None,
        reply: bytes = b"",
        wrong_credentials: bool = False,
    ) -> None:
        super().__init__(rule)
        self.rule = rule
        """The broken rule in words: `frame of 20971520 bytes`."""
        self.limit = limit
        """The limit that it broke, if there is one."""
        self.key = key
        """The configuration key that changes the limit: `limits.message_bytes`."""
        self.reply = reply
        """The last bytes for the peer, in its protocol, before the FIN."""
        self.wrong_credentials = wrong_credentials
        """The peer is not who it says: it is counted, and answered later each time."""

    def __str__(self) -> str:
        text = self.rule
        if self.limit is not None:
            text += f", limit {self.limit}"
        if self.key is not None:
            text += f" ({self.key})"
        return text
