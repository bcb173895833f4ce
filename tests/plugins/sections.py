"""The sections of a configuration that the journal takes, of made-up values."""

from typing import Any

from gateway.config import model
from gateway_testkit.settings import options_of

__all__ = ["journal_settings"]

_JOURNAL = model.Journal.model_fields.keys()


def journal_settings(
    *, acknowledge_when_published: bool = False, **values: Any
) -> dict[str, Any]:
    """Arguments of a `Journal` with these values of `journal.*` and `spool.*`."""
    mine = {name: values.pop(name) for name in _JOURNAL & values.keys()}
    return {
        "settings": options_of(model.Journal, **mine),
        "rolls": options_of(model.Spool, **values),
        "acknowledge_when_published": acknowledge_when_published,
    }
