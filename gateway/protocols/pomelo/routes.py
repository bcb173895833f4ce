"""Loads the route dictionary and the protobuf definitions that handshakes send.

A reload makes new `Definitions`.  A connection keeps those of its handshake, because
that is what its client encodes by.

Versions are computed as Pomelo does it, so that clients that cached the same definitions
from a Pomelo server need not fetch them again.
"""

from __future__ import annotations

import hashlib
import json
from base64 import b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gateway.protocols.pomelo.protobuf import (
    Schema,
    Undecodable,
    Unencodable,
    Unusable,
    parse,
)

STORED: Mapping[str, Any] = {"code": 200}
NOT_STORED: Mapping[str, Any] = {"code": 500, "msg": "not stored"}
"""The answer to a request that could not be stored."""

_MOST_CODE = 0xFFFF
_MOST_ROUTE_BYTES = 0xFF


@dataclass(slots=True, frozen=True)
class Dictionary:
    """Short codes for routes, 1 to 65535."""

    codes: Mapping[str, int]
    version: str


@dataclass(slots=True, frozen=True)
class Protos:
    """The protobuf definitions of routes whose bodies are not JSON."""

    client: Mapping[str, Any]
    """Definitions of requests and notifies, parsed; `server` is of responses and pushes."""
    server: Mapping[str, Any]
    version: str
    requests: Schema
    answers: Schema
    browser_answers: Schema
    """The schema of `answers`, with strings as browsers' clients expect them."""
    mute: frozenset[str]
    """Routes whose responses can not say whether their request is stored."""

    @property
    def mute_requests(self) -> list[str]:
        """Mute routes that have requests, as far as the definitions tell, in their order."""
        return [name for name in self.requests.routes if name in self.mute]


@dataclass(slots=True, frozen=True, eq=False)
class Definitions:
    """All that a handshake says about routes."""

    dictionary: Dictionary | None = None
    protos: Protos | None = None


class Watched:
    """The files that some options name, and when each was written as it was read last."""

    def __init__(self, *options: Any) -> None:
        self._files = [Path(one) for one in options if isinstance(one, (str, Path))]
        self.note()

    def note(self) -> None:
        """Take the times as they are now: the files are about to be read."""
        self._written = [_written(path) for path in self._files]

    @property
    def changed(self) -> bool:
        """One was written since; one that is missing does not count."""
        return any(
            _written(path) not in (before, 0)
            for path, before in zip(self._files, self._written, strict=True)
        )


def load(
    routes: Any = None, client_protos: Any = None, server_protos: Any = None
) -> Definitions:
    """Definitions from options: values or paths of JSON files.  Raises `Unusable`, which names them."""
    listed = value_of(routes, "routes")
    dictionary = _dictionary(listed, where("routes", routes))
    client = value_of(client_protos, "client_protos")
    server = value_of(server_protos, "server_protos")
    protos = None
    if client is not None or server is not None:
        protos = _protos(
            client or {},
            server or {},
            where("client_protos", client_protos),
            where("server_protos", server_protos),
        )
    return Definitions(dictionary, protos)


def carries_code(answers: Schema, route: str) -> bool:
    """A response on this route can say 200 and 500, and is not the same for both."""
    for value in (STORED, NOT_STORED):
        try:
            found = answers.decode(route, answers.encode(route, value))
        except (Unencodable, Undecodable):
            return False
        if found.get("code") != value["code"]:
            return False
    return True


def js_json(value: Any) -> str:
    """JSON as JavaScript's `JSON.stringify` writes it: keys that are numbers first."""
    return json.dumps(_as_js(value), separators=(",", ":"), ensure_ascii=False)


def _as_js(value: Any) -> Any:
    if isinstance(value, Mapping):
        keys = sorted((k for k in value if _is_index(k)), key=int)
        keys += [k for k in value if not _is_index(k)]
        return {key: _as_js(value[key]) for key in keys}
    if isinstance(value, (list, tuple)):
        return [_as_js(each) for each in value]
    return value


def _is_index(key: str) -> bool:
    canonical = key.isascii() and key.isdigit() and (key == "0" or key[0] != "0")
    return canonical and int(key) < 2**32 - 1


def _version(*values: Any) -> str:
    joined = "".join(js_json(value) for value in values)
    digest = hashlib.md5(joined.encode(), usedforsecurity=False).digest()
    return b64encode(digest).decode()


def _written(path: Path) -> int:
    try:
        return path.stat().st_ctime_ns  # a change of who may read it counts, too
    except OSError:
        return 0


def value_of(option: Any, name: str) -> Any:
    """The value of an option, or of its JSON file.  Raises `Unusable`, which names both."""
    if not isinstance(option, (str, Path)):
        return option
    try:
        # In UTF-8, with its mark or without.
        found = json.loads(Path(option).read_bytes())
        json.dumps(found, ensure_ascii=False).encode()
    except OSError as why:
        raise Unusable(f"options.{name}: {why}") from None
    except UnicodeEncodeError as why:
        before = why.object[max(0, why.start - 20) : why.start]
        raise Unusable(
            f"options.{name}: {option}: half of a surrogate pair behind {before!r}"
        ) from None
    except (ValueError, RecursionError) as why:
        raise Unusable(f"options.{name}: {option}: {why}") from None
    return found


def where(name: str, option: Any) -> str:
    """The beginning of errors: the option, and its file if it has one."""
    return f"options.{name}" + (
        f": {option}" if isinstance(option, (str, Path)) else ""
    )


def _dictionary(option: Any, where: str) -> Dictionary | None:
    """The dictionary of a list of routes, whose codes count from 1, or of routes and codes."""
    if not option:
        return None
    if isinstance(option, Mapping):
        pairs: Iterable[tuple[Any, Any]] = option.items()
    elif isinstance(option, (list, tuple)):
        pairs = zip(option, range(1, len(option) + 1), strict=True)
    else:
        raise Unusable(
            f"{where}: must be a list of routes, or routes and codes, not {option!r:.80}"
        )
    codes: dict[str, int] = {}
    taken: set[int] = set()
    for route, code in pairs:
        _check(route, code, where)
        if route in codes or code in taken:
            raise Unusable(f"{where}: {route!r} or code {code} is there twice")
        codes[route] = code
        taken.add(code)
    return Dictionary(codes, _version(codes))


def check_route(route: str) -> None:
    """Raises ValueError for a route that some clients could not read."""
    if not route or max(route) > "\uffff":
        raise ValueError(f"{route!r} is not a route that every client can read")
    if len(route.encode(errors="replace")) > _MOST_ROUTE_BYTES:
        raise ValueError(f"route of more than {_MOST_ROUTE_BYTES} bytes: {route!r}")


def _check(route: Any, code: Any, where: str) -> None:
    if not isinstance(route, str):
        raise Unusable(f"{where}: {route!r} is not a route: it must be a text")
    try:
        check_route(route)
    except ValueError as why:
        raise Unusable(f"{where}: {why}") from None
    if type(code) is not int or not 0 < code <= _MOST_CODE:
        raise Unusable(f"{where}: {route!r}: code {code!r} is not 1 to {_MOST_CODE}")


def _protos(client: Any, server: Any, client_at: str, server_at: str) -> Protos:
    requests = parse(client, client_at)
    answers = parse(server, server_at)
    schema = Schema(answers, where=server_at)
    return Protos(
        requests,
        answers,
        _version(requests, answers),
        Schema(requests, where=client_at),
        schema,
        Schema(answers, surrogates=True, where=server_at),
        frozenset(name for name in schema.routes if not carries_code(schema, name)),
    )
