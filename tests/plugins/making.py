"""The type of a fixture that makes, starts or asks for something: as often as a test says."""

from collections.abc import Callable
from typing import TypeVar

__all__ = ["Make"]

_T = TypeVar("_T")
Make = Callable[..., _T]
