"""Options of Lumberjack listeners: `listeners[].options` in the configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from gateway.sdk.section import NEW_CONNECTIONS, Section
from gateway.sdk.units import Number, Size, Time

if TYPE_CHECKING:
    from gateway.sdk.protocol import Listener

MiB = 2**20
_COMPRESSED_BYTES = 64 * MiB
_TIMES_MEMORY = 4
"""The factor by which `journal.memory_bytes` must exceed a frame.

Half of that memory is for incomplete frames, and writers such as Filebeat have two
windows on their way."""
MINUTE = 60.0


class Options(Section):
    """Options of listeners for Lumberjack v1 and v2 (Filebeat, Logstash, …)."""

    reload: ClassVar = NEW_CONNECTIONS

    stall_timeout: Annotated[float, Time("1s", "24h")] = Field(
        default=5 * MINUTE,
        description="Hang up when a window is not on disk after this long (time)",
    )
    keepalive_interval: Annotated[float, Time("1s", "10s")] = Field(
        default=3.0,
        description="Tell a waiting v2 writer this often that we are alive (time)",
    )
    window_pause: Annotated[float, Time("100ms", "1h")] = Field(
        default=1.0,
        description="Acknowledge part of a window that comes frame by frame (time)",
    )
    window_events: Annotated[int, Number(1, 1 << 24)] = Field(
        default=65_536, description="Events in one window (number)"
    )
    pairs: Annotated[int, Number(1, 1 << 20)] = Field(
        default=1024, description="Key-value pairs in one v1 event (number)"
    )
    compressed_bytes: Annotated[int, Size("1KiB", "1GiB")] = Field(
        default=_COMPRESSED_BYTES,
        description="One compressed frame, as it travels (size)",
    )
    inflate_ratio: Annotated[int, Number(1, 1 << 16)] = Field(
        default=400,
        description="Contents of a compressed frame, times its size (number)",
    )


def short_of_memory(listener: Listener[Options], memory_bytes: int) -> int | None:
    """The `journal.memory_bytes` that configured large frames need, if it is less than that."""
    compressed_bytes = listener.options.compressed_bytes
    least = _TIMES_MEMORY * compressed_bytes
    asked = compressed_bytes > _COMPRESSED_BYTES
    return least if asked and memory_bytes < least else None
