"""Definitions of the shapes that games have, for whoever must serve every game.

Public games were looked at; names and tags are others here.  `ANSWERS` says what a game's
service answers, as its clients must hear it.
"""

from pathlib import Path
from typing import Any, NamedTuple

import yaml

__all__ = ["SHAPES", "Said", "Shape"]

VECTORS = Path(__file__).parents[1] / "vectors" / "pomelo-shapes.yaml"


class Said(NamedTuple):
    """A request, and what its client hears: of the gateway, or of the game's service."""

    route: str
    body: dict[str, Any]
    stored: dict[str, Any]
    """Once it is stored, where nobody else answers."""
    answered: dict[str, Any]
    """What the game's own service answers."""


class Shape(NamedTuple):
    """A game's definitions, and what is said in it."""

    routes: list[str]
    client_protos: dict[str, Any]
    server_protos: dict[str, Any]
    said: list[Said]
    mute: list[str]
    """Routes of which `gateway check` says that nobody hears whether it is stored."""


_OK = {"code": 200}

_many_routes = [f"hall{n % 6}.h{n}.act{n}" for n in range(60)]
_many_pushes = [f"onEvent{n}" for n in range(20)]

SHAPES: dict[str, Shape] = {
    **{
        name: Shape(**{**shape, "said": [Said(**said) for said in shape["said"]]})
        for name, shape in yaml.safe_load(VECTORS.read_text()).items()
    },
    "sixty routes and twenty pushes": Shape(
        [*_many_routes, *_many_pushes],
        {
            route: {"required uInt32 n": 1, "optional string s": 2}
            for route in _many_routes[::2]
        },
        {
            **{route: {"optional uInt32 left": 1} for route in _many_routes[::4]},
            **{route: {"required uInt32 n": 1} for route in _many_pushes},
        },
        [
            Said(
                route,
                {"n": n},
                {} if n % 4 == 0 else _OK,
                {"left": n} if n % 4 == 0 else {"code": 200, "n": n},
            )
            for n, route in enumerate(_many_routes)
        ],
        _many_routes[::4],
    ),
}
