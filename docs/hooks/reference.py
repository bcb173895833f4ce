"""The page that is made of the configuration's types."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from gateway import config

__all__ = ["configuration"]

_REF = "#/$defs/"
_OURS = "gateway__protocols__"
"""Options of the protocols that come with the gateway are named so."""

_CONFIGURATION = """\
# Configuration

Every key: what it takes, its default, its meaning. This page is made from the types that read the file, of the version that you are reading about. [conf/gateway.yaml](../conf/gateway.yaml) shows the same as a file to start from, `gateway check FILE` says whether yours is right, and `gateway schema` prints a JSON Schema for your editor.

Sizes are written `64MiB`, `100MB` or as a number of bytes, times `200ms`, `5s`, `15m`, `1h`, `30d`. `${env:NAME}`, `${env:NAME:-default}` and `${file:/run/secrets/name}` may stand in any value. An unknown key is an error. Keys without a default are **needed**, or need not be there at all; their meaning says which.
"""


def configuration() -> str:
    """Markdown: a table for each section, in the order in which they are met."""
    schema = config.json_schema()
    defs: dict[str, Any] = schema["$defs"]
    listener = defs["Listener"]["properties"]
    del listener["protocol"]["anyOf"]  # what is installed here says nothing to others
    listener["protocol"]["type"] = "string"
    parts = [_CONFIGURATION]
    waiting = [("The file", schema)]
    met: set[str] = set()
    while waiting:
        title, section = waiting.pop(0)
        about = "" if title == "The file" else f"{section.get('description', '')}\n\n"
        parts.append(f"## {title}\n\n{about}{_table(section)}\n")
        for name in [*_refs(section.get("properties", {})), *_options(section)]:
            if name not in met:
                met.add(name)
                waiting.append((_title(name), defs[name]))
    return "\n".join(parts)


def _table(section: dict[str, Any]) -> str:
    needed = set(section.get("required", ()))
    rows = ["| key | takes | default | meaning |", "|---|---|---|---|"]
    for key, value in section.get("properties", {}).items():
        default = "**needed**" if key in needed else _default(value)
        takes = ", ".join(dict.fromkeys(_takes(value)))
        rows.append(
            f"| `{key}` | {takes} | {default} | {_cell(value.get('description', ''))} |"
        )
    return "\n".join(rows)


def _default(value: dict[str, Any]) -> str:
    if "default" not in value:
        return ""
    return f"`{_cell(json.dumps(value['default'], ensure_ascii=False))}`"


def _takes(value: dict[str, Any]) -> Iterator[str]:
    """The kinds of value, but for placeholders, which fit everywhere."""
    if ref := value.get("$ref"):
        title = _title(ref.removeprefix(_REF))
        yield f"[{title}](#{title.lower().replace(' ', '-').replace('.', '')})"
    elif "enum" in value:
        yield " ".join(f"`{one}`" for one in value["enum"])
    elif "const" in value:
        yield f"`{json.dumps(value['const'])}`"
    elif "anyOf" in value:
        for kind in value["anyOf"]:
            yield from _takes(kind)
    elif "pattern" in value:
        if "KiB" in value["pattern"]:
            yield "size"
        elif "us|ms" in value["pattern"]:
            yield "time"
        elif not value["pattern"].startswith(("^-?[0-9]", r"\$\{", "^(true")):
            yield "text"
    elif isinstance(value.get("type"), list):
        for kind in value["type"]:
            yield from _takes({"type": kind})
    elif value.get("type") == "array":
        of = ", ".join(dict.fromkeys(_takes(value.get("items", {})))) or "anything"
        yield f"list of {of}"
    elif value.get("type") == "integer" and "maximum" in value:
        most = value["maximum"]
        end = f" to {most:,}" if most < 1 << 31 else ""
        yield f"number from {value.get('minimum', 0)}{end}"
    elif kind := value.get("type"):
        words = {"string": "text", "integer": "size", "object": "keys and values"}
        yield words.get(kind, kind) if kind != "null" else "`null`"


def _refs(value: Any) -> Iterator[str]:
    """The sections that some keys take, in their order."""
    if isinstance(value, dict):
        if "$ref" in value:
            yield value["$ref"].removeprefix(_REF)
        for inner in value.values():
            yield from _refs(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _refs(inner)


def _options(section: dict[str, Any]) -> list[str]:
    """Of listeners: the options of each protocol of ours."""
    return [name for name in _refs(section.get("allOf", [])) if name.startswith(_OURS)]


def _title(name: str) -> str:
    if name.startswith(_OURS):
        return f"Options of {name.removeprefix(_OURS).split('__')[0]}"
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
