"""The rules of Splash: what its service and its Spark query have in common.

A splash on a field paints it and its four neighbours.  A field belongs to the player who
painted it last, and nothing else counts: so the requests, in their order, are the game.
"""

from __future__ import annotations

from collections import deque
from typing import Any

__all__ = ["HEIGHT", "NAME", "REACH", "ROOMS", "WIDTH", "Room", "play"]

ROOMS = ("lobby", "garden", "cellar")
WIDTH, HEIGHT = 16, 10
"""Fields of a room's board."""

REACH = ((0, 0), (1, 0), (-1, 0), (0, 1), (0, -1))
"""The fields that a splash paints, as seen from the field that it hits."""

NAME = 16
"""Characters of a player's name; the rest is cut off."""


class Room:
    """A board, and what was said of late."""

    def __init__(self) -> None:
        self._owners: dict[tuple[int, int], str] = {}
        self._said: deque[dict[str, Any]] = deque(maxlen=30)

    def splash(self, player: str, x: object, y: object) -> dict[str, Any]:
        """Paint.  Raises ValueError outside the board."""
        # No floats, no booleans: Spark's INT is neither.
        if type(x) is not int or type(y) is not int:
            raise ValueError("x and y must be integers")
        if not (0 <= x < WIDTH and 0 <= y < HEIGHT):
            raise ValueError("not on the board")
        around = [(x + i, y + j) for i, j in REACH]
        fields = [(i, j) for i, j in around if 0 <= i < WIDTH and 0 <= j < HEIGHT]
        self._owners.update(dict.fromkeys(fields, player))
        return {"at": [x, y], "fields": fields}

    def say(self, player: str, text: object) -> dict[str, Any]:
        """Chat."""
        self._said.append({"player": player, "text": str(text)[:200]})
        return {"text": str(text)[:200]}

    def seen(self) -> dict[str, Any]:
        """The view of a player who enters."""
        board = [[*at, player] for at, player in self._owners.items()]
        return {"board": board, "chat": list(self._said)}


def play(
    rooms: dict[str, Room], route: str, uid: str | None, body: Any
) -> dict[str, Any]:
    """Do what a request asks for; returns what the room hears of it.

    Raises KeyError, TypeError or ValueError if it can not be asked for.
    """
    room, player = rooms[body["room"]], (uid or "nobody")[:NAME]
    news: dict[str, Any] = {"what": route, "player": player}
    if route == "room.splash":
        news |= room.splash(player, body["x"], body["y"])
    elif route == "room.say":
        news |= room.say(player, body["text"])
    return news
