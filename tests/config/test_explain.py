"""What is said of a key that is none where it stands."""

import re
from collections.abc import Iterator
from typing import Any, get_args, get_origin

import pytest

from gateway.config.explain import _unknown
from gateway.config.listener import Listener, options_of, options_of_all
from gateway.config.model import Config
from gateway.sdk.section import Section

PROTOCOLS = [name for name, _ in options_of_all()]
Where = tuple[str | int, ...]


def inner_sections(annotation: Any) -> list[type[Section]]:
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return [annotation]
    return [each for inner in get_args(annotation) for each in inner_sections(inner)]


def sections(
    of: type[Section], where: Where, protocol: str
) -> Iterator[tuple[Where, type[Section]]]:
    """Itself and those in it, of a listener of that protocol."""
    yield where, of
    for key, field in of.model_fields.items():
        inside = inner_sections(field.annotation)
        if of is Listener and key == "options":
            kind = options_of(protocol)
            inside = [] if kind is None else [kind]
        step: Where = {list: (key, 0), dict: (key, "mine")}.get(
            get_origin(field.annotation), (key,)
        )
        for one in inside:
            yield from sections(one, (*where, *step), protocol)


ALL = {one: dict(sections(Config, (), one)) for one in PROTOCOLS}
KEYS = {
    key
    for found in ALL.values()
    for where, section in found.items()
    if where[:1] == ("listeners",)
    for key in section.model_fields
}


def at(home: str, protocol: str) -> type[Section] | None:
    """The section of that place, as advice spells it."""
    text = "" if home == "the top level" else home
    steps = re.findall(r"[^.\[\]]+|\[\]", text)
    where = tuple({"[]": 0, "NAME": "mine"}.get(step, step) for step in steps)
    return ALL[protocol].get(where)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_where_a_key_belongs_is_true(protocol):
    """Every key of every protocol's listener, in every section that has it not."""
    file = {"listeners": [{"protocol": protocol}]}
    for where, section in ALL[protocol].items():
        for key in KEYS - section.model_fields.keys():
            said = _unknown((*where, key), file)
            assert said.startswith("unknown key; "), (where, key)
            if "here it is" in said:  # a word that others have for it
                assert re.split(r"\W", said.split("here it is ")[1])[0] in (
                    *section.model_fields,
                    *where[-1:],
                )
                continue
            if close := re.search(r"did you mean '(\w+)'", said):
                assert close[1] in section.model_fields, (where, key, said)
            for each in said.split("belongs in ")[1].split(" or "):
                home, _, whose = each.partition(" of ")
                for one in whose.split(", ") if whose else PROTOCOLS:
                    found = at(home, one)
                    assert found is not None, (where, key, said)
                    assert key in found.model_fields, (where, key, said)


def test_a_key_of_another_protocol():
    """Its place has the same name, but is another one's."""
    said = _unknown(
        ("listeners", 0, "options", "rates"),
        {"listeners": [{"protocol": "lumberjack"}]},
    )
    assert said == "unknown key; it belongs in listeners[].options of pomelo"


@pytest.mark.parametrize(
    ("where", "key", "said"),
    [
        (("listeners", 0), "port", "here it is listen: tcp:PORT"),
        (("listeners", 0, "tls"), "ssl_crl", "here it is tls.client_crl"),
        (("forward",), "host", "allowed: to, next_after"),
    ],
)
def test_what_others_call_it(where, key, said):
    assert said in _unknown((*where, key), {"listeners": [{"protocol": "lumberjack"}]})
