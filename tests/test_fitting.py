"""A double takes what it replaces takes: `tests/plugins/fitting.py`."""

from types import SimpleNamespace
from unittest.mock import Mock

import pytest

import gateway.figures
from fitting import misfit


def ours(one: int, two: int = 2, *, named: int, more: int = 4) -> None:
    """As a module of ours has it."""


ours.__module__ = "gateway.figures"


@pytest.mark.parametrize(
    "double",
    [
        lambda *_, **__: None,
        lambda _, other=0, *, named, more=0: None,
        lambda one, two=0, *, more=0, **others: None,
        Mock(),
        dict,
    ],
)
def test_what_takes_it_all_fits(double):
    """Names of what is given by its place may differ."""
    assert misfit(ours, double) is None


@pytest.mark.parametrize(
    "double",
    [
        lambda one, two, *, named: None,  # a new one with a default
        lambda one, two, *, more=0: None,  # one that must be given
        lambda one, *, named, more=0: None,
        lambda one, two, three, *, named, more=0: None,  # wants what nobody gives
        lambda: None,
    ],
)
def test_what_does_not_is_named_with_its_double(double):
    """With the parameters of both, as one that mends it wants to see them."""
    said = misfit(ours, double)
    assert said is not None
    assert said.startswith("the double of gateway.figures.ours(one: int, two")
    assert ") -> None takes (" in said


class Owner:
    """What has methods of each kind."""

    def method(self, one: int) -> None:
        """Bound to what calls it."""

    @classmethod
    def of_class(cls, one: int) -> None:
        """Bound to the class."""

    @staticmethod
    def of_none(one: int) -> None:
        """Bound to nothing."""


for _each in (Owner.method, Owner.of_class.__func__, Owner.of_none):  # type: ignore[attr-defined]
    _each.__module__ = "gateway.figures"


@pytest.mark.parametrize(
    ("name", "fits", "does_not"),
    [
        ("method", lambda self, one: None, lambda self: None),
        ("of_class", classmethod(lambda cls, one: None), classmethod(lambda cls: None)),
        ("of_none", staticmethod(lambda one: None), staticmethod(lambda: None)),
    ],
)
def test_methods_as_they_are_called(monkeypatch, name, fits, does_not):
    """Each kind is bound in its way, and so is its double."""
    monkeypatch.setattr(Owner, name, fits)
    monkeypatch.undo()
    with pytest.raises(TypeError, match=rf"{name}.* takes "):
        monkeypatch.setattr(Owner, name, does_not)


def test_by_the_name_of_its_module(monkeypatch):
    """Also within a context, and through an object that has the function."""
    monkeypatch.setattr(gateway.figures, "ours", ours, raising=False)
    with monkeypatch.context() as patch, pytest.raises(TypeError, match="ours"):
        patch.setattr("gateway.figures.ours", lambda: None)
    with pytest.raises(TypeError, match="ours"):
        monkeypatch.setattr(SimpleNamespace(it=ours), "it", lambda: None)


def test_what_is_not_ours_is_left_alone(monkeypatch):
    monkeypatch.setattr("os.path.exists", lambda: None)
    monkeypatch.setattr(gateway.figures, "number", 1, raising=False)
    monkeypatch.setattr(gateway.figures, "number", lambda: None)
