"""Calls of a lobby's other gateways, carried out for this one's clients.

A call that comes twice is done once, and answered alike.  Its first answer may have been
lost, or a list may have two addresses of this gateway.  So calls are remembered for longer
than they are repeated.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import msgspec
from attrs import define
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from gateway.protocols.pomelo.admin import PAGES, json_answer
from gateway.protocols.pomelo.lobby.call import Call, Done, rows_of
from gateway.protocols.pomelo.push.delivery import Slices
from gateway.protocols.pomelo.registry import Registry
from gateway.sdk.protocol import Answer

OUTCOMES = ("done", "repeated", "refused")
_REMEMBERED_SECONDS = 60.0
"""The longest `options.lobby.timeout` is half of it."""
_MOST_REMEMBERED = 1 << 17
_FINE = 200
_CALL = msgspec.json.Decoder(Call)


class _Known(NamedTuple):
    """A call that came, and its answer."""

    at: float
    answer: Deferred[Answer]

    def wait(self) -> Deferred[Answer]:
        """Fires with the answer, each time that it is asked for."""
        waits: Deferred[Answer] = Deferred()

        def tell(answer: Answer) -> Answer:
            waits.callback(answer)
            return answer

        self.answer.addCallback(tell)
        return waits


@define(eq=False, slots=False)
class Taken:
    """Does what the others ask for, each call once; *run* is of this life of *node*."""

    _log = Logger()

    _node: str
    _run: str
    _registry: Registry
    _reactor: Any

    def __attrs_post_init__(self) -> None:
        self._known: dict[tuple[str, int], _Known] = {}
        """Known calls, in the order in which they came."""
        self.outcomes = dict.fromkeys(OUTCOMES, 0)
        """Outcomes of calls; one that is refused is no call, or one too many."""

    def page(self, request: bytes) -> Answer | Deferred[Answer]:
        """Answers `POST /api/lobby`: does what this call asks for, unless that was done."""
        try:
            call = _CALL.decode(request)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as why:
            return self._refuse(f"the request is no call: {why}", 400)
        if call.by == self._run:  # this gateway's own list has it, too
            return json_answer(Done(self._node, self._run))
        if call.page:  # which changes nothing, so it may be asked for twice
            return json_answer(self._show(call))
        self._forget()
        name = call.by, call.number
        if (known := self._known.get(name)) is not None:
            self.outcomes["repeated"] += 1
            return known.wait()
        if len(self._known) >= _MOST_REMEMBERED:
            rule = f"{_MOST_REMEMBERED} calls in {_REMEMBERED_SECONDS:g} s are the most"
            return self._refuse(rule, 503)
        self.outcomes["done"] += 1
        answer = Deferred.fromCoroutine(self._answer(call))
        known = self._known[name] = _Known(self._reactor.seconds(), answer)
        return known.wait()

    async def _answer(self, call: Call) -> Answer:
        try:
            return json_answer(await self._do(call))
        except Exception:  # a fault of ours: who asks is told so, however often he asks
            self._log.failure("a call of another gateway")
            return json_answer({"error": "internal error"}, 500)

    async def _do(self, call: Call) -> Done:
        slices, done = Slices(self._reactor), Done(self._node, self._run)
        counts: Counter[str] = Counter()
        for row in rows_of(call):
            await slices.count(1)
            try:
                delivery = row.begin(self._registry)
            except ValueError as why:
                done.refused += 1
                done.why = done.why or str(why)
                continue
            await slices.deliver(delivery)
            counts.update(delivery.counts)
        done.counts = counts
        return done

    def _show(self, call: Call) -> Done:
        done, page = Done(self._node, self._run), PAGES.get(call.page)
        if page is None:
            done.refused, done.why = 1, f"this gateway has no list of {call.page[:40]}"
            return done
        shown = page(self._registry)(call.query)
        if shown.code == _FINE:
            done.shown = msgspec.Raw(shown.body)
        else:
            done.refused, done.why = 1, msgspec.json.decode(shown.body)["error"]
        return done

    def _forget(self) -> None:
        due = self._reactor.seconds() - _REMEMBERED_SECONDS
        while self._known:
            name, oldest = next(iter(self._known.items()))
            if oldest.at > due:
                return
            del self._known[name]

    def _refuse(self, why: str, code: int) -> Answer:
        self.outcomes["refused"] += 1
        return json_answer({"error": why}, code)
