"""One of `listeners` for a test, without a configuration file and without its bounds.

settings(Options, message_bytes=1 << 16, heartbeat=0.05, token="t0k")
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, TypeVar

from pydantic import SecretStr

from gateway.sdk.limits import Limits
from gateway.sdk.section import Section

__all__ = ["options_of", "settings"]

_Section = TypeVar("_Section", bound=Section)


def settings(kind: type[Section], **values: Any) -> Any:
    """Limits and options of this *kind* with *values*.  Implements `gateway.sdk.protocol.Settings`."""
    limits = {
        key: values.pop(key)
        for key in Limits.model_fields.keys() - kind.model_fields
        if key in values
    }
    return SimpleNamespace(
        name="test",
        limits=Limits.model_construct(**limits),
        options=options_of(kind, **values),
    )


def options_of(kind: type[_Section], **values: Any) -> _Section:
    """A section with these values, in its own units: seconds, bytes, plain secrets."""
    return kind.model_construct(
        **{
            name: _secret(value) if _is_secret(kind, name) else value
            for name, value in values.items()
        }
    )


def _is_secret(kind: type[Section], name: str) -> bool:
    return "SecretStr" in str(kind.model_fields[name].annotation)


def _secret(value: Any) -> Any:
    match value:
        case str():
            return SecretStr(value)
        case dict():
            return {key: _secret(inner) for key, inner in value.items()}
    return value
