"""Options of Lumberjack listeners: `listeners[].options` in the configuration."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from gateway.sdk.section import NEW_CONNECTIONS, Section
from gateway.sdk.units import Number, Size, Time

__all__ = ["Options"]

MiB = 2**20
MINUTE = 60.0


class Options(Section):
    """What is particular to Lumberjack v1 and v2 (Filebeat, Logstash, …)."""

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
        description="Acknowledge part of a window after a pause of its writer (time)",
    )
    window_events: Annotated[int, Number(1, 1 << 24)] = Field(
        default=65_536, description="Events in one window (number)"
    )
    pairs: Annotated[int, Number(1, 1 << 20)] = Field(
        default=1024, description="Key-value pairs in one v1 event (number)"
    )
    compressed_bytes: Annotated[int, Size("1KiB", "1GiB")] = Field(
        default=64 * MiB, description="One compressed frame, as it travels (size)"
    )
    inflate_ratio: Annotated[int, Number(1, 1 << 16)] = Field(
        default=400,
        description="Contents of a compressed frame, times its size (number)",
    )
