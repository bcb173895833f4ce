"""The JSON Schema of the configuration, for editors (yaml-language-server)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from gateway.config.listener import options_of_all
from gateway.config.model import Config
from gateway.sdk.units import PLACEHOLDER_PATTERN, format_size, format_time

_UNITS: dict[str, Callable[[Any], str]] = {"size": format_size, "time": format_time}
_PLACEHOLDER = {"type": "string", "pattern": PLACEHOLDER_PATTERN}


def json_schema() -> dict[str, Any]:
    """Made from the same types that read the file; `${env:NAME}` fits everywhere."""
    kinds: dict[str, type[BaseModel]] = dict(options_of_all())
    found, defs = models_json_schema(
        [(Config, "validation"), *((kind, "validation") for kind in kinds.values())],
        ref_template="#/$defs/{model}",
    )
    refs = {name: found[kind, "validation"] for name, kind in kinds.items()}
    schema = {"$defs": defs["$defs"], **defs["$defs"].pop("Config")}
    del schema["$defs"]["Section"]
    listener = schema["$defs"]["Listener"]
    listener["properties"]["protocol"]["enum"] = list(kinds)
    listener["properties"]["options"].pop("$ref", None)
    listener["allOf"] = [
        {
            "if": {"properties": {"protocol": {"const": name}}},
            "then": {"properties": {"options": ref}},
        }
        for name, ref in refs.items()
    ]
    for section in (schema, *schema["$defs"].values()):
        section.pop("title", None)
        for key, value in section.get("properties", {}).items():
            value.pop("title", None)
            section["properties"][key] = _as_written(key, value)
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "gateway configuration",
        **schema,
    }


def _as_written(key: str, value: dict[str, Any]) -> dict[str, Any]:
    """The schema of a key's value in the file, where that is more than its type."""
    about: dict[str, Any] = {
        k: value.pop(k) for k in ("description", "default") if k in value
    }
    if write := _UNITS.get(value.pop("unit", "")):
        about["default"] = write(about["default"])
    if key in ("websocket", "proxy_protocol", "tls"):
        kinds = [kind for kind in value["anyOf"] if kind.get("type") != "null"]
        del about["default"]
        value = {"anyOf": kinds if key == "tls" else [{"const": False}, *kinds]}
    elif "enum" in value or value.get("type") == "boolean":
        value = {"anyOf": [value, _PLACEHOLDER]}
    return {**value, **about}
