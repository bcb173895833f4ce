"""Connections: `POST /v1/logs`, whose log records are counted and stored as they came.

What is no request of OTLP gets 400, and is not to be sent again; what can not be stored
now gets 429 or 503, and is.  No log record is rejected, so no success is a partial one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from gateway.sdk.batches import Ready
from gateway.sdk.costs import FRAME
from gateway.sdk.http_server import Body, HttpSession, Request, Steps, Stores
from gateway.sdk.protocol import Answer
from gateway.sdk.varint import varint
from gateway_otlp.records import (
    FORMS,
    JSON,
    MOST,
    PROTOBUF,
    pack,
    raw_json,
    raw_protobuf,
)

__all__ = ["Session"]

_PATH = "/v1/logs"
_PIECE = 1000
_PARSED = 0.0015
"""Cost of a byte of JSON."""
_SUCCESS = {JSON: b"{}", PROTOBUF: b""}


class Session(HttpSession):
    """One connection."""

    _form = JSON
    """The form of the request that comes, and so of its answer."""

    def refusal(self, request: Request) -> Answer | None:
        kind = next(iter(request.fields(b"content-type")), "")
        form = kind.partition(";")[0].strip().lower()
        self._form = form if form in FORMS else JSON
        if request.path != _PATH:
            return self.error(404, f"there is {_PATH} only")
        if request.method != "POST":
            return replace(self.error(405, "only POST"), headers={"Allow": "POST"})
        if form not in FORMS:
            return self.error(415, f"only {' and '.join(FORMS)}")
        return None

    def asked(self, request: Request, body: Body) -> Steps[Answer | Stores]:
        form, most = self._form, self.settings.limits.inflated_bytes
        if form == JSON:
            yield Ready(cost=_PARSED * len(body.plain))
        raw = raw_json if form == JSON else raw_protobuf
        count = size = 0
        try:
            for step, record in enumerate(raw(body.plain)):
                if not step % _PIECE:
                    yield Ready(cost=_PIECE * FRAME)
                if record is not None:
                    count += 1
                    size += record.size
                    if count > MOST or size > most:
                        return self.error(413, f"{count} log records of {size} bytes")
        except ValueError as why:
            return self.error(400, str(why))
        stored = pack(form, body.coding, body.sent)
        return Stores(count, stored, size, Answer(_SUCCESS[form], form))

    def error(self, code: int, text: str) -> Answer:
        """A google.rpc.Status, in the form of the request."""
        status: Any = msgspec.json.encode({"message": text})
        if self._form == PROTOBUF:
            data = text.encode()
            status = b"\x12" + varint(len(data)) + data
        return Answer(status, self._form, code)
