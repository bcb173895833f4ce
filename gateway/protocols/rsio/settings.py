"""The parts of the configuration that RS.io reads, by shape (design §5).

`limits.Options` has the defaults and says what each is; a test passes any object with
these attributes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

__all__ = ["Settings"]


class _Limits(Protocol):
    @property
    def message_bytes(self) -> int: ...
    @property
    def unacknowledged_bytes(self) -> int: ...


class _Options(Protocol):
    @property
    def subscribe(self) -> Sequence[str]: ...
    @property
    def window(self) -> int: ...
    @property
    def content_type(self) -> str: ...
    @property
    def element_bytes(self) -> int: ...
    @property
    def streams(self) -> int: ...
    @property
    def hello_timeout(self) -> float: ...
    @property
    def goodbye_timeout(self) -> float: ...
    @property
    def keepalive_interval(self) -> float: ...
    @property
    def offsets(self) -> bool: ...
    @property
    def compression(self) -> bool: ...
    @property
    def tokens(self) -> Mapping[str, str]: ...
    @property
    def check_publishers(self) -> bool: ...


class Settings(Protocol):
    """One of `listeners` in the configuration, as far as it matters here."""

    @property
    def limits(self) -> _Limits:
        """Sizes in bytes."""

    @property
    def options(self) -> _Options:
        """What is particular to RS.io, as `limits.Options` has it."""
