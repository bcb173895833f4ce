"""Options of syslog listeners: `listeners[].options` in the configuration."""

from __future__ import annotations

from typing import ClassVar, Literal
from zoneinfo import ZoneInfo

from pydantic import Field, field_validator

from gateway.sdk.fields import Text
from gateway.sdk.section import NEW_CONNECTIONS, Section

__all__ = ["Options"]


class Options(Section):
    """Options of listeners for syslog."""

    reload: ClassVar = NEW_CONNECTIONS

    timezone: Text = Field(
        default="UTC", description="Of times without one, as RFC 3164's (IANA name)"
    )
    trailer: Literal["any", "newline", "nul"] = Field(
        default="any",
        description="What ends a message that comes without its length: newline, nul, any",
    )

    @field_validator("timezone")
    @classmethod
    def _exists(cls, name: str) -> str:
        try:
            return ZoneInfo(name).key
        except (LookupError, OSError, ValueError):
            raise ValueError(f"no such time zone: {name!r}") from None
