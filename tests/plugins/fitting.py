"""A double that a test puts in place of a function of ours takes what that takes.

No type checker looks at tests: a parameter that a function got would be noticed where the
double is called, as a failure of whoever calls it, and only if that test passes it.  Here
`monkeypatch.setattr` itself fails, and names both.
"""

import inspect
import pkgutil
from collections.abc import Callable
from typing import Any

import pytest

__all__ = ["misfit"]

_OURS = {
    "gateway",
    "gateway_demo",
    "gateway_testkit",
    "gateway_bulk",
    "gateway_otlp",
    "gateway_syslog",
    "rsio_check",
}
_set = pytest.MonkeyPatch.setattr
_Parameter = inspect.Parameter
_BY_PLACE = (_Parameter.POSITIONAL_ONLY, _Parameter.POSITIONAL_OR_KEYWORD)


def pytest_configure() -> None:
    """From now on all doubles are looked at."""
    pytest.MonkeyPatch.setattr = _set_what_fits  # type: ignore[method-assign]


def _set_what_fits(
    self: pytest.MonkeyPatch, target: Any, *rest: Any, **more: Any
) -> None:
    place = (target,) if isinstance(target, str) else (target, rest[0])
    before = _at(*place)
    _set(self, target, *rest, **more)
    if (why := misfit(before, _at(*place))) is not None:
        raise TypeError(why)


def _at(target: Any, name: str | None = None) -> Any:
    """What is there, bound as a caller gets it; None where there is nothing."""
    if name is None:
        return pkgutil.resolve_name(target)
    return getattr(target, name, None)


def misfit(original: Any, double: Any) -> str | None:
    """A sentence, if there is a call that *original* takes and *double* does not.

    Whatever has a default may be given or not; names of what is given by its place may
    differ.
    """
    if not (inspect.isroutine(original) or inspect.isclass(original)):
        return None
    module = getattr(original, "__module__", None) or ""
    if module.partition(".")[0] not in _OURS or not callable(double):
        return None
    try:
        wanted, found = inspect.signature(original), inspect.signature(double)
    except ValueError:  # C has none to show
        return None
    for asked in (_least(wanted), _most(wanted)):
        try:
            found.bind(*asked[0], **asked[1])
        except TypeError as why:
            name = f"{module}.{original.__qualname__}"
            return f"the double of {name}{wanted} takes {found}: {why}"
    return None


def _least(of: inspect.Signature) -> tuple[list[None], dict[str, None]]:
    """A call with what has no default."""
    return _call(of, lambda one: one.default is _Parameter.empty)


def _most(of: inspect.Signature) -> tuple[list[None], dict[str, None]]:
    """A call with all."""
    return _call(of, lambda one: True)


def _call(
    of: inspect.Signature, given: Callable[[_Parameter], bool]
) -> tuple[list[None], dict[str, None]]:
    those = [one for one in of.parameters.values() if given(one)]
    named = [one.name for one in those if one.kind is _Parameter.KEYWORD_ONLY]
    return [None for one in those if one.kind in _BY_PLACE], dict.fromkeys(named)
