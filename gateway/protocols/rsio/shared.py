"""What the connections of one RS.io listener share: settings, journal, senders' offsets."""

from __future__ import annotations

import hmac

from twisted.internet.interfaces import IReactorTime

from gateway.feeds.publisher import Publishers
from gateway.interfaces import Journal
from gateway.protocol import Settings
from gateway.protocols.rsio.limits import Limits
from gateway.protocols.rsio.messages import Extension
from gateway.protocols.rsio.offsets import Offsets
from gateway.protocols.rsio.options import Options

__all__ = ["Shared"]


class Shared:
    """See the module's text; the limits are those in force for this listener."""

    def __init__(
        self,
        settings: Settings[Options],
        journal: Journal,
        clock: IReactorTime,
        publishers: Publishers,
        offsets: Offsets,
    ) -> None:
        limits, options = settings.limits, settings.options
        self.limits = Limits(
            declared_bytes=limits.message_bytes,
            element_bytes=min(options.element_bytes, limits.message_bytes),
            streams=options.streams,
        )
        self.unacknowledged_bytes = limits.unacknowledged_bytes
        self.control_messages = limits.control_messages
        self.options = options
        self.journal = journal
        self.clock = clock
        self.publishers = publishers
        self.offsets = offsets

    @property
    def offered(self) -> set[Extension]:
        """The extensions that our hello lists."""
        offered = {Extension.KEEPALIVE, Extension.GOODBYE_ACK, Extension.CODES}
        if self.options.tokens or self.options.offsets:
            offered.add(Extension.AUTH)
        if self.options.offsets:
            offered |= {Extension.OFFSETS, Extension.INSTANCES}
        if self.options.compression:
            offered.add(Extension.COMPRESSION)
        return offered

    def holder(self, secret: bytes) -> str | None:
        """The name that has this token."""
        found = None
        for name, token in self.options.tokens.items():
            if hmac.compare_digest(token.get_secret_value().encode(), secret):
                found = name
        return found
