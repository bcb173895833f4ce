"""The connections of one RS.io listener: settings, journal, senders' offsets."""

from __future__ import annotations

import hmac

from attrs import define, field
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from gateway.protocols.rsio.check_publishers import check_publishers
from gateway.protocols.rsio.limits import Limits
from gateway.protocols.rsio.messages import Extension
from gateway.protocols.rsio.offsets import Key, Offsets
from gateway.protocols.rsio.options import Options
from gateway.sdk.interfaces import Journal
from gateway.sdk.pressure import batch_bytes
from gateway.sdk.protocol import Settings
from gateway.sdk.publisher import Publishers

_FORGOTTEN_SECONDS = 60.0
"""Seconds between two lines of the log about names that are forgotten."""


@define(eq=False, slots=False)
class Shared:
    """See the module's text; the limits are those in force for this listener."""

    _log = Logger()

    _settings: Settings[Options]
    journal: Journal
    clock: IReactorTime
    publishers: Publishers = field(factory=Publishers)
    """The publishers that peers may subscribe to."""
    offsets: Offsets = field(factory=Offsets)
    """How far named senders are stored; shared by all listeners of a daemon."""

    def __attrs_post_init__(self) -> None:
        limits, options = self._settings.limits, self._settings.options
        if options.check_publishers:
            self.publishers = self.publishers.with_(check_publishers(self.clock))
        self.limits = Limits(
            declared_bytes=limits.message_bytes,
            element_bytes=min(options.element_bytes, limits.message_bytes),
            streams=options.streams,
        )
        self.unacknowledged_bytes = limits.unacknowledged_bytes
        self.batch_bytes = batch_bytes(limits.unacknowledged_bytes)
        self.control_messages = limits.control_messages
        self.options = options
        self._logged_at = float("-inf")

    def most_names(self, key: Key) -> tuple[int, str]:
        """How many names are remembered with this one, and the option that says so."""
        if key.proved:
            return self.options.token_names, "options.token_names"
        return self.options.names, "options.names"

    def name_forgotten(self, key: Key) -> None:
        """There was no place for *key*, or another name went for it: log it, or not."""
        now = self.clock.seconds()
        if now - self._logged_at < _FORGOTTEN_SECONDS:
            return
        self._logged_at = now
        most, option = self.most_names(key)
        self._log.warn(
            "names of senders are forgotten, {count} so far: more than {most} "
            "{whose} ({option}); a sender that comes back can not resume",
            count=self.offsets.forgotten,
            most=most,
            option=option,
            whose=f"with the token of {key.source!r}"
            if key.proved
            else "without token",
        )

    @property
    def offered(self) -> set[Extension]:
        offered = {
            Extension.KEEPALIVE, Extension.GOODBYE_ACK, Extension.CODES, Extension.LIMITS,
        }  # fmt: skip
        if self.options.tokens or self.options.offsets:
            offered.add(Extension.AUTH)
        if self.options.offsets:
            offered |= {Extension.OFFSETS, Extension.INSTANCES}
        if self.options.compression:
            offered.add(Extension.COMPRESSION)
        return offered

    def holder(self, secret: bytes) -> str | None:
        found = None
        for name, token in self.options.tokens.items():
            if hmac.compare_digest(token.get_secret_value().encode(), secret):
                found = name
        return found
