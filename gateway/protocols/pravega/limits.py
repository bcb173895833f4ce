"""Limits of segments, writers, tables and reads, and the checks of some."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.protocols.pravega.errors import NAME_IN_LOGS
from gateway.protocols.pravega.frames import MAX_LENGTH
from gateway.sdk.interfaces import Refusal


@dataclass(slots=True, frozen=True)
class Limits:
    """Numbers, and sizes in bytes; see docs/pravega.md."""

    message_bytes: int = MAX_LENGTH
    segments: int = 100_000
    """The most segments of all connections together."""
    transaction_bytes: int = 256 << 20
    """Held for open transactions and large events of all connections together."""
    internal_bytes: int = 64 << 20
    """Bytes of reader groups, state synchronizers and other internal segments together."""
    retained_bytes: int | None = None
    """Bytes of events that readers may ask for, of all streams together; None: any."""
    table_bytes: int = 64 << 20
    """Keys and values of all tables together, and 128 bytes for each."""
    numbers: int = 2_000_000
    """Writers and attributes, of all segments together."""
    writers: int = 10_000
    """Set up by one connection."""
    reads: int = 1000
    """Waiting on one connection."""
    name_bytes: int = 1024
    """Bytes of a segment's name."""

    def over(self, option: str, what: str) -> Refusal:
        """The refusal of *what*, which goes over the limit of an option."""
        return Refusal(what, limit=getattr(self, option), key=f"options.{option}")

    def check_numbers(self, count: int) -> None:
        """Raises `Refusal` if *count* writers and attributes are too many."""
        if count > self.numbers:
            raise self.over("numbers", f"{count} writers and attributes of segments")

    def check_internal(self, name: str, own: int, all_bytes: int, more: int) -> None:
        """Raises `Refusal` if an internal segment may not have so many bytes *more*.

        It may have a quarter of what all may have, so that one whose users never
        truncate it leaves room for others.
        """
        which = f"{name[:NAME_IN_LOGS]!r}, of a reader group or synchronizer,"
        if all_bytes + more > self.internal_bytes:
            raise self.over(
                "internal_bytes", f"{all_bytes + more} bytes with an append to {which}"
            )
        if 4 * (own + more) > self.internal_bytes:
            raise self.over(
                "internal_bytes",
                f"{which} has {own + more} bytes, and may have a quarter of the limit",
            )

    def check_retained(self, name: str, total: int) -> None:
        """Raises `Refusal` if an append would make *total* bytes in all streams."""
        if self.retained_bytes is not None and total > self.retained_bytes:
            where = repr(name[:NAME_IN_LOGS])
            what = (
                f"{total} bytes of events that streams keep, with an append to {where}"
            )
            raise self.over("retained_bytes", what)

    def check_segments(self, have: int) -> None:
        """Raises `Refusal` if there is no room for one more than *have* segments."""
        if have >= self.segments:
            raise self.over("segments", f"{have} segments and one more")

    def check_writers(self, have: int) -> None:
        """Raises `Refusal` if a connection has *have* writers and may have no more."""
        if have >= self.writers:
            what = f"{have} writers on one connection and one more"
            raise self.over("writers", what)
