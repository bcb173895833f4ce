"""Connections: `POST /_bulk`, and what published clients ask before it.

Documents are counted and stored as they came, and each action has its item in the answer,
once all are durable.  `update` and `delete` have items with an error: what is stored here
is not changed.  The rest is what clients look for: a version, a license, templates.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

import msgspec

from gateway.sdk.batches import Ready
from gateway.sdk.costs import EVENT, FRAME, REPLY
from gateway.sdk.http_server import Body, HttpSession, Request, Steps, Stores
from gateway.sdk.protocol import Answer
from gateway_bulk.documents import Item, items, pack

__all__ = ["MOST_ANSWER_BYTES", "Session"]

_JSON = "application/json"
_COMPATIBLE = "application/vnd.elasticsearch+json;compatible-with=8"
_MOST = 1 << 16
"""Actions of a request, so that answers are bounded."""
MOST_ANSWER_BYTES = 1 << 24
_ANSWERED = 128
"""Bytes of an item, beside its names."""
_PIECE = 200
_PRODUCT = {"X-Elastic-Product": "Elasticsearch"}
"""Clients go on only if they see it."""
_VERSION = "8.19.0"
_ABOUT = {
    "name": "gateway",
    "cluster_name": "gateway",
    "cluster_uuid": "gateway",
    "version": {
        "number": _VERSION,
        "build_flavor": "default",
        "lucene_version": "9.12.2",
        "minimum_wire_compatibility_version": "7.17.0",
        "minimum_index_compatibility_version": "7.0.0",
    },
    "tagline": "You Know, for Search",
}
_LICENSE = {
    "license": {"status": "active", "uid": "gateway", "type": "basic", "mode": "basic"}
}
_SHORT = {"errors,items.*.error,items.*.status", "items.*.error,items.*.status,errors"}
"""`filter_path` of Beats and others, which want no more."""


class Session(HttpSession):
    """One connection."""

    _kind = _JSON
    """The form of the answer, as the request asks for it."""
    _names = 0

    def asked(self, request: Request, body: Body) -> Steps[Answer | Stores]:
        *first, last = [unquote(part) for part in request.path.strip("/").split("/")]
        if last == "_bulk" and len(first) <= 1 and request.method in ("POST", "PUT"):
            return (yield from self._bulk(request, body, "".join(first)))
        return self._looking(request, [*first, last])

    def _bulk(self, request: Request, body: Body, index: str) -> Steps[Answer | Stores]:
        most = self.settings.limits.inflated_bytes
        answers: list[Any] = []
        count = size = answered = 0
        short = request.query.get("filter_path") in _SHORT
        try:
            for number, item in enumerate(items(body.plain, index)):
                if not number % _PIECE:
                    yield Ready(cost=_PIECE * (FRAME + EVENT + REPLY))
                said = _item(item)
                if not short:
                    said |= {"_index": item.index, "_id": item.id or self._name()}
                answers.append({item.action[:20]: said})
                if item.document is not None:
                    count += 1
                    size += len(item.document) + len(item.id) + len(item.index)
                answered += _ANSWERED + len(item.index) + len(item.id)
                if number >= _MOST or size > most or answered > MOST_ANSWER_BYTES:
                    return self.error(413, f"more than {number} actions, {size} bytes")
        except ValueError as why:
            return self.error(400, str(why))
        if not answers:
            return self.error(400, "request body is required")
        errors = count < len(answers)
        said = {"took": 0, "errors": errors, "items": answers}
        answer = self._answer(said)
        if not count:
            return answer
        return Stores(count, pack(index, body.coding, body.sent), size, answer)

    def _looking(self, request: Request, path: list[str]) -> Answer:
        """Answer requests of clients before they send."""
        reads = request.method in ("GET", "HEAD")
        match path:
            case [""] if reads:
                return self._answer(_ABOUT)
            case ["_license"] if reads:
                return self._answer(_LICENSE)
            case ["_xpack"] if reads:
                return self._answer({"license": _LICENSE["license"], "features": {}})
            case ["_cluster", "health"] if reads:
                return self._answer({"cluster_name": "gateway", "status": "green"})
            case ["_nodes", *_] if reads:
                return self._answer({"cluster_name": "gateway", "nodes": {}})
            case [
                "_template" | "_index_template" | "_component_template" | "_ilm"
                | "_ingest" | "_data_stream", *_
            ] if request.method in ("PUT", "POST", "HEAD", "GET"):  # fmt: skip
                # There is nothing that they would shape.
                return self._answer({"acknowledged": True})
            case [name] if request.method in ("PUT", "HEAD") and name[:1] != "_":
                return self._answer({"acknowledged": True, "index": name})
        return self.error(404, "only documents are taken here: POST /_bulk")

    def _answer(self, said: Any, code: int = 200) -> Answer:
        return Answer(msgspec.json.encode(said), self._kind, code, _PRODUCT)

    def error(self, code: int, text: str) -> Answer:
        """An error as Elasticsearch words it."""
        kind = {429: "es_rejected_execution_exception", 401: "security_exception"}.get(
            code, "illegal_argument_exception"
        )
        why = {"type": kind, "reason": text}
        return self._answer(
            {"error": {"root_cause": [why], **why}, "status": code}, code
        )

    def _name(self) -> str:
        """An id for a document without one, which is not asked for again."""
        self._names += 1
        return f"{id(self):x}-{self._names}"

    def refusal(self, request: Request) -> Answer | None:
        # Clients of version 8 ask for their version's JSON, and look for it.
        wanted = next(iter(request.fields(b"accept")), "")
        self._kind = _COMPATIBLE if wanted.startswith(_COMPATIBLE[:34]) else _JSON
        return None


def _item(item: Item) -> dict[str, Any]:
    """The answer to one action."""
    if item.document is not None:
        return {"status": 201, "result": "created", "_version": 1}
    reason = f"{item.action[:20]}: what is stored here is not changed"
    error = {"type": "illegal_argument_exception", "reason": reason}
    return {"status": 400, "error": error}
