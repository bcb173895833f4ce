"""Definitions of the shapes that games have, for whoever must serve every game.

Public games were looked at; names and tags are others here.  `ANSWERS` says what a game's
service answers, as its clients must hear it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["SHAPES", "Said", "Shape"]


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
    # As a chat has it: a route both ways, whose answer is a message without fields.
    "empty answer": Shape(
        ["hall.talk.say", "onTalk"],
        {"hall.talk.say": {"required string text": 1, "optional string to": 2}},
        {"hall.talk.say": {}, "onTalk": {"required string text": 1}},
        [Said("hall.talk.say", {"text": "hi", "to": "*"}, {}, {})],
        ["hall.talk.say"],
    ),
    "both ways, no code": Shape(
        [],
        {"duel.field.step": {"required sInt32 dx": 1, "required sInt32 dy": 2}},
        {"duel.field.step": {"optional uInt32 left": 1, "optional string why": 2}},
        [Said("duel.field.step", {"dx": -3, "dy": 4}, {}, {"left": 300, "why": "mud"})],
        ["duel.field.step"],
    ),
    "both ways, required fields": Shape(
        ["gate.door.enter"],
        {"gate.door.enter": {"required string name": 1}},
        {
            "gate.door.enter": {
                "required string host": 1,
                "required uInt32 port": 2,
                "optional uInt32 code": 3,
            }
        },
        [Said("gate.door.enter", {"name": "ann"}, {}, {"host": "h-1", "port": 3014})],
        ["gate.door.enter"],
    ),
    "both ways, with a code": Shape(
        ["gate.door.knock"],
        {"gate.door.knock": {"optional uInt32 times": 1}},
        {"gate.door.knock": {"required uInt32 code": 1, "optional float wait": 2}},
        [Said("gate.door.knock", {"times": 2}, _OK, {"code": 200, "wait": 1.5})],
        [],
    ),
    "nested": Shape(
        ["party.tent.pitch"],
        {
            "message Place": {"required double x": 1, "required double y": 2},
            "party.tent.pitch": {
                "message Tent": {
                    "message Cloth": {"required uInt32 kind": 1},
                    "required string name": 1,
                    "optional Cloth cloth": 2,
                    "optional Place at": 3,
                },
                "required Tent tent": 1,
            },
        },
        {
            "message Seat": {"required uInt32 no": 1, "optional string by": 2},
            "party.tent.pitch": {"optional Seat seat": 1},
        },
        [
            Said(
                "party.tent.pitch",
                {
                    "tent": {
                        "name": "b",
                        "cloth": {"kind": 7},
                        "at": {"x": 1.5, "y": -2.25},
                    }
                },
                {},
                {"seat": {"no": 300, "by": "bo"}},
            )
        ],
        ["party.tent.pitch"],
    ),
    "repeated": Shape(
        ["party.roster.put"],
        {
            "message Place": {"required double x": 1, "required double y": 2},
            "party.roster.put": {
                "message Mate": {
                    "message Item": {
                        "required uInt32 kind": 1,
                        "repeated sInt32 runes": 2,
                    },
                    "required string name": 1,
                    "repeated Item items": 2,
                    "optional Place at": 3,
                },
                "repeated Mate mates": 1,
                "repeated string tags": 2,
                "repeated uInt32 slots": 16,
            },
        },
        {
            "message Seat": {"required uInt32 no": 1, "optional string by": 2},
            "party.roster.put": {"repeated Seat seats": 1, "repeated uInt32 free": 2},
        },
        [
            Said(
                "party.roster.put",
                {
                    "mates": [
                        {
                            "name": "bo",
                            "items": [{"kind": 7, "runes": [1, -2, 300]}],
                            "at": {"x": 1.5, "y": -2.25},
                        },
                        {"name": "cy", "items": [{"kind": 8, "runes": [4]}]},
                    ],
                    "tags": ["red", "späť"],
                    "slots": [1, 128, 70000],
                },
                {},
                {"seats": [{"no": 1, "by": "bo"}, {"no": 200}], "free": [3, 400]},
            )
        ],
        ["party.roster.put"],
    ),
    "one way only": Shape(
        ["shop.list.see", "onPrice"],
        {"shop.list.see": {"required uInt32 page": 1}},
        {"onPrice": {"required uInt32 item": 1, "optional double price": 2}},
        [Said("shop.list.see", {"page": 2}, _OK, {"code": 200, "items": [1, 2]})],
        [],
    ),
    "dots and letters of the world": Shape(
        ["a.b.c.d.e", "游戏.房间.进入", "onÜber.x"],
        {
            "游戏.房间.进入": {"required string 名字": 1},
            "a.b.c.d.e": {"optional uInt32 n": 1},
        },
        {"游戏.房间.进入": {"optional string 说": 1}, "a.b.c.d.e": {}},
        [
            Said("a.b.c.d.e", {"n": 1}, {}, {}),
            Said("游戏.房间.进入", {"名字": "小明"}, {}, {"说": "你好"}),
        ],
        ["游戏.房间.进入", "a.b.c.d.e"],
    ),
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
