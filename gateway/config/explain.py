"""Sentences that say what to write instead, made of pydantic's list of errors."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from functools import cache
from itertools import starmap
from typing import Any, get_args, get_origin

from pydantic import ValidationError

from gateway.config.fields import OF_ONE, OF_SEVERAL
from gateway.config.listener import Listener, options_of, options_of_all
from gateway.config.model import Config
from gateway.config.problems import spell
from gateway.sdk.section import Misfits, Place, Section

#: What other collectors call it.
_ELSEWHERE = {
    "address": "listen: tcp:HOST:PORT",
    "bind": "listen: tcp:HOST:PORT",
    "client_inactivity_timeout": "limits.idle",
    "crl_file": "tls.client_crl",
    "host": "listen: tcp:HOST:PORT",
    "port": "listen: tcp:PORT",
    "ssl": "tls",
    "ssl_certificate": "tls.certificate",
    "ssl_certificate_authorities": "tls.client_ca",
    "ssl_client_authentication": "tls.client_auth",
    "ssl_crl": "tls.client_crl",
    "ssl_enabled": "tls",
    "ssl_key": "tls.private_key",
    "ssl_supported_protocols": "tls.minimum_version",
    "ssl_verify_mode": "tls.client_auth",
    "type": "protocol",
}
_MAX_MESSAGE = 400

#: Between those that pydantic says it expected: `'a', 2 or None`.
_BETWEEN = re.compile(", | or ")

#: Steps in pydantic's places that are not in the file.
_NOT_THERE = {OF_ONE, OF_SEVERAL, "[key]"}


def explain(error: ValidationError, file: object) -> Iterator[tuple[Place, str]]:
    """Every error's place in the *file*'s value and what is wrong there."""
    for detail in error.errors(include_url=False):
        place = tuple(step for step in detail["loc"] if step not in _NOT_THERE)
        cause = detail.get("ctx", {}).get("error")
        if isinstance(cause, Misfits):
            for inner, message in cause.found:
                yield (*place, *inner), message
        else:
            yield place, _sentence(detail, place, file)[:_MAX_MESSAGE]


def without(value: object, places: list[Place]) -> object:
    """A copy of a file's value in which the keys at these places are missing."""
    rest = _copy(value)
    for place in places:
        inner: Any = rest
        for step in place[:-1]:
            try:
                inner = inner[step]
            except (KeyError, IndexError, TypeError):
                break
        else:
            if place and isinstance(inner, dict):
                inner.pop(place[-1], None)
    return rest


def _copy(value: object) -> object:
    match value:
        case dict():
            return {key: _copy(inner) for key, inner in value.items()}
        case list():
            return [_copy(inner) for inner in value]
    return value


def _sentence(detail: Any, place: Place, file: object) -> str:
    value, context = detail["input"], detail.get("ctx", {})
    match detail["type"]:
        case "value_error":
            said = str(context["error"])
            if value is None or isinstance(value, bool):  # in the file's words
                return re.sub(f"not {value}$", f"not {_shown(value)}", said)
            return said
        case "missing":
            return f"is required: {_description(place, file)}"
        case "extra_forbidden":
            return _unknown(place, file)
        case "literal_error":
            expected = _BETWEEN.split(context["expected"])
            return _none_of(value, [each.strip("'") for each in expected])
        case "model_type" | "model_attributes_type" | "dict_type":
            return f"must be {_mapping(place, file)}, not {_shown(value)}"
        case "list_type":
            return f"must be a list, not {_shown(value)}"
        case "too_short":
            return "must have at least one entry"
        case "bool_type":
            return f"must be true or false, not {_shown(value)}"
    return f"{detail['msg']}, not {_shown(value)}"


def _shown(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case dict():
            return "a mapping"
        case list():
            return "a list"
    return repr(value)


def _unknown(place: Place, file: object) -> str:
    key = str(place[-1])
    section = _section_at(place[:-1], file)
    known = list(section.model_fields) if section else []
    ours = _ELSEWHERE.get(key, "")
    if ours and re.split(r"\W", ours)[0] in (*known, *place[-2:-1]):
        return f"unknown key; here it is {ours}"
    close = difflib.get_close_matches(key, known, n=1)
    homes = _homes().get(key, {})
    told = [f"did you mean {each!r}?" for each in close]
    if homes:
        what = repr(key) if close else "it"
        told.append(f"{what} belongs in {' or '.join(starmap(_home, homes.items()))}")
    return f"unknown key; {' '.join(told or ['allowed:', ', '.join(known)])}"


def _home(place: str, protocols: dict[str, None]) -> str:
    """Where a key belongs; an option with whose it is."""
    return f"{place} of {', '.join(protocols)}" if protocols else place


def _none_of(value: object, allowed: list[str]) -> str:
    *others, last = allowed
    choice = f"{', '.join(others)} or {last}" if others else last
    text = f"must be {choice}, not {_shown(value)}"
    close = difflib.get_close_matches(str(value), allowed, n=1)
    return f"{text}; did you mean {close[0]}?" if close else text


def _mapping(place: Place, file: object) -> str:
    section = _section_at(place, file)
    keys = f" of {', '.join(section.model_fields)}" if section else ""
    off = "false or " if place[-1:] in (("websocket",), ("proxy_protocol",)) else ""
    return f"{off}a mapping{keys}"


def _description(place: Place, file: object) -> str:
    section = _section_at(place[:-1], file)
    field = section.model_fields.get(str(place[-1])) if section and place else None
    return str(field.description) if field else "no default"


def _section_at(place: Place, file: object) -> type[Section] | None:
    section: type[Section] | None = Config
    value: Any = file
    named = False
    """Whether the next step is a name that the file gives to a section."""
    for step in place:
        outer = value
        value = _inside(value, step)
        if section is None or isinstance(step, int) or named:
            named = False
            continue
        field = section.model_fields.get(step)
        named = field is not None and get_origin(field.annotation) is dict
        if section is Listener and step == "options":
            section = options_of(_inside(outer, "protocol"))
        else:
            found = sections_in(field.annotation) if field else []
            section = found[0] if found else None
    return section


def _inside(value: Any, step: str | int) -> Any:
    try:
        return value[step]
    except (KeyError, IndexError, TypeError):
        return None


def sections_in(annotation: Any) -> list[type[Section]]:
    """The types of sections in the type of a key, as in `list[Section] | None`."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return [annotation]
    return [found for inner in get_args(annotation) for found in sections_in(inner)]


@cache
def _homes() -> dict[str, dict[str, dict[str, None]]]:
    """Every key, the sections that have it, and of options the protocols that do."""
    homes: dict[str, dict[str, dict[str, None]]] = {}

    def visit(section: type[Section], place: Place, protocol: str | None) -> None:
        for key, field in section.model_fields.items():
            where = homes.setdefault(key, {})
            whose = where.setdefault(spell(place) or "the top level", {})
            origin = get_origin(field.annotation)
            steps = (key + "[]" * (origin is list), *["NAME"] * (origin is dict))
            inside = [(protocol, kind) for kind in sections_in(field.annotation)]
            if protocol is not None:
                whose[protocol] = None
            if section is Listener and key == "options":
                inside = [*options_of_all()]
            for of, inner in inside:
                visit(inner, (*place, *steps), of)

    visit(Config, (), None)
    return homes
