"""A configuration file with every key, its meaning and its default, as comments.

Made from the JSON Schema, and so from the types that read the file: no key is missing,
those of installed plug-ins included.  As in conf/gateway.yaml, a line that begins with
`#` and no blank is a setting to uncomment.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from gateway.config.reader import Dumper
from gateway.config.schema import json_schema

_WIDTH = 88
_HEAD = """\
# Only what is not a comment is set; all other keys stand here with their defaults, as
# lines that begin with # and no blank: uncomment what you change, and the line above it
# that it belongs to.  `gateway check FILE` says whether you got it right.
#
# Sizes:  64MiB  100MB  65536 (bytes).       Times:  200ms  5s  15m  1h  30d.
# ${env:NAME}, ${env:NAME:-default} and ${file:/run/secrets/name} are filled in, in
# values only; $${ stands for ${.  Relative paths are below this file's folder.
"""

Schema = Mapping[str, Any]


def commented(
    settings: Mapping[str, Any],
    limits: Mapping[str, Mapping[str, Any]],
    more: Sequence[Mapping[str, Any]] = (),
) -> str:
    """The text of a file that says *settings*, and shows every other key, and *more*
    listeners.

    *limits* are the defaults of `listeners[].limits` that protocols have of their own,
    by protocol.
    """
    schema = json_schema()
    writer = _Writer(schema["$defs"])
    lines: list[str] = []
    for key, value in schema["properties"].items():
        lines.append("")
        if key != "listeners":
            lines += writer.key(key, value, settings, 0, needed=False)
            continue
        lines += [*_comment(value["description"], 0), "listeners:"]
        for number, listener in enumerate(settings["listeners"]):
            lines += [""] if number else []
            own = limits.get(listener["protocol"], {})
            lines += writer.listener(listener, own)
        for listener in more:
            first, *others = [f"{key}: {_flow(each)}" for key, each in listener.items()]
            lines += ["", f"  #- {first}", *(f"    #{other}" for other in others)]
    return _HEAD + "\n".join(lines) + "\n"


class _Writer:
    """Knows the schema's definitions."""

    def __init__(self, definitions: Mapping[str, Schema]) -> None:
        self._definitions = definitions

    def listener(self, active: Mapping[str, Any], limits: Schema) -> Iterator[str]:
        """An entry of `listeners`."""
        section = dict(self._definitions["Listener"])
        properties = dict(section["properties"])
        properties["options"] = {
            **properties["options"],
            "$ref": self._options(section, active["protocol"]),
        }
        first = True
        for line in self._section({**section, "properties": properties}, active, 4):
            setting = line.strip() and not line.lstrip().startswith("#")
            if first and setting:
                first = False
                yield f"  - {line[4:]}"
            elif first:
                yield f"  {line[4:]}"
            else:
                yield _with_default(line, limits)

    @staticmethod
    def _options(section: Schema, protocol: str) -> str:
        for case in section["allOf"]:
            if case["if"]["properties"]["protocol"]["const"] == protocol:
                return str(case["then"]["properties"]["options"]["$ref"])
        raise KeyError(protocol)

    def _section(
        self, section: Schema, active: Mapping[str, Any] | None, indent: int
    ) -> Iterator[str]:
        """The lines of a section's keys; *active* is None where all of it is a comment."""
        needed = section.get("required", ())
        for key, value in section.get("properties", {}).items():
            yield from self.key(key, value, active, indent, needed=key in needed)

    def key(
        self,
        key: str,
        value: Schema,
        active: Mapping[str, Any] | None,
        indent: int,
        *,
        needed: bool,
    ) -> Iterator[str]:
        """One key with its meaning, and what is below it."""
        about = value.get("description", "")
        on = active is not None and key in active
        if needed and not on:
            about = f"{about} (needed)"
        yield from _comment(about, indent)
        mark = " " * indent + ("" if on else "#")
        given = active[key] if active is not None and on else _default(value)
        below = self._below(value)
        if below is None or (on and not isinstance(given, Mapping)):
            shown = (
                "" if given is None and "default" not in value else f" {_flow(given)}"
            )
            yield f"{mark}{key}:{shown}"
            return
        if not below.get("properties"):
            return
        yield f"{mark}{key}:"
        inside = given if on and isinstance(given, Mapping) else None
        yield from self._section(below, inside, indent + 2)

    def _below(self, value: Schema) -> Schema | None:
        """The section that a key holds, if it holds one."""
        kinds: Sequence[Schema] = (value, *value.get("anyOf", ()))
        for kind in kinds:
            if "$ref" in kind:
                found = self._definitions[kind["$ref"].rpartition("/")[2]]
                return found if found.get("type") == "object" else None
        return None


def _comment(text: str, indent: int) -> list[str]:
    width = _WIDTH - indent - 2
    return [" " * indent + f"# {line}" for line in textwrap.wrap(text, width)]


def _default(value: Schema) -> Any:
    """The default of a key; a size in bytes is a number."""
    default = value.get("default")
    return int(default) if isinstance(default, str) and default.isdecimal() else default


def _flow(value: Any) -> str:
    """YAML on one line."""
    text = yaml.dump(
        value,
        None,
        Dumper,
        default_flow_style=True,
        sort_keys=False,
        width=float("inf"),
    )
    return str(text).removesuffix("\n").removesuffix("\n...")


def _with_default(line: str, limits: Schema) -> str:
    """A limit as the protocol has it, if it has its own."""
    key, colon, _ = line.strip().removeprefix("#").partition(":")
    if colon and key in limits and line.lstrip().startswith("#"):
        return f"{line.partition(':')[0]}: {_flow(limits[key])}"
    return line
