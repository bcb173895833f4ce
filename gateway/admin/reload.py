"""`POST /api/reload`: reloads the configuration and answers with what became of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred

from gateway.sdk.protocol import Answer, Post

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def reload_post(ask: Callable[[], Deferred[Any]]) -> Post:
    """Answers 200 when the configuration was applied, 409 when nothing has changed.

    *ask* reloads; what it gives is a dataclass with `applied`, and is the answer as JSON.
    """

    def answer(outcome: DataclassInstance) -> Answer:
        fields = asdict(outcome)
        body = json.dumps(fields).encode()
        return Answer(body, "application/json", 200 if fields["applied"] else 409)

    def post(body: bytes) -> Deferred[Answer]:
        return ask().addCallback(answer)

    return post
