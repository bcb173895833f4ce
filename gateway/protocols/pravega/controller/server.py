"""Serves the gRPC connections of a controller listener.

A call is carried out when its message is complete.  Its answer is sent when the changes
that it depends on are durable; if the client's deadline is earlier, the call fails.
Calls are carried out in their order: one that needs several turns holds back the others.
"""

from __future__ import annotations

from collections import deque

from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from gateway.event import Stored
from gateway.protocols.pravega.container import PROTOCOL
from gateway.protocols.pravega.controller.controller import Controller
from gateway.protocols.pravega.controller.grpc import Call, Calls, Code, Failed
from gateway.protocols.pravega.controller.methods import Caller, Unfinished
from gateway.protocols.pravega.options import Options
from gateway.protocols.pravega.origins import Origins
from gateway.protocols.pravega.segments import Change
from gateway.sdk.closing import Closing
from gateway.sdk.costs import ControlBudget, Turn
from gateway.sdk.interfaces import Connection, Refusal
from gateway.sdk.pressure import Valve
from gateway.sdk.protocol import Settings

_STREAMS = 1000
"""Calls of one connection at once.  Java clients start calls before they know it."""
_CALL_FRAMES = 20
"""Frames that a client may send for each call that is answered, and one for each KiB."""
_CALL = 50.0
"""The least cost of a call for a turn."""
_BAD_CREDENTIALS = 3
"""The number of calls with wrong credentials that closes the connection."""
_CREDENTIALS = "options.users, options.tokens"
_MESSAGE_BYTES = 1 << 20
"""Limit of a request: the largest is a stream cut of ten thousand segments."""
_UNSENT_BYTES = 4 << 20
"""Limit of the answers that wait for the client or the disk; then calls fail."""


class ControllerAccept:
    """An `interfaces.Accept`: makes the server of each connection of a listener."""

    def __init__(self, settings: Settings[Options], controller: Controller) -> None:
        self._message_bytes = min(settings.limits.message_bytes, _MESSAGE_BYTES)
        self._control_messages = settings.limits.control_messages
        self._controller = controller

    def __call__(self, connection: Connection) -> ControllerServer:
        calls = Calls(message_bytes=self._message_bytes, streams=_STREAMS)
        control = ControlBudget(
            self._controller.container.clock.seconds, self._control_messages
        )
        return ControllerServer(self._controller, connection, calls, control)


class ControllerServer(Closing):
    """One connection.  Implements `interfaces.Server` and `container.Submitter`."""

    _log = Logger()

    def __init__(
        self,
        controller: Controller,
        connection: Connection,
        calls: Calls,
        control: ControlBudget,
    ) -> None:
        super().__init__(connection)
        self._controller = controller
        self._container = controller.container
        self._calls = calls
        self._due: deque[tuple[int, Call, bytes]] = deque()
        """The number of the change that each answer waits for, the call, the answer."""
        self._due_bytes = 0
        self._untaken: deque[Call] = deque()
        """Calls that are not carried out yet: the first one needs another turn."""
        self._denied: dict[Call, str] = {}
        """Calls with wrong credentials, whose answer waits: its text."""
        self._timers: dict[Call, IDelayedCall] = {}
        """Timers of the calls that wait: when each fails."""
        self._control = control
        self._origins = Origins(connection.origin)
        self._bad_credentials = 0
        self._draining = False
        # Calls are answered though the journal is full: they bring few bytes.
        self._valve = Valve(
            connection, self._container.journal, _STREAMS, self._regulate
        )

    # -- called by the network -------------------------------------------------------

    def received(self, data: bytes) -> None:
        if self._closed:
            return
        calls = self._calls
        try:
            turn = Turn()
            self._untaken.extend(calls.received(data, turn))
            self._go_on(turn)
            self._connection.hold(calls.held_bytes)
            why = self._control.spend(calls.control)
            calls.control = 0
            if why is not None:
                raise calls.calm(why)
        except Refusal:
            self._over()
            raise
        self._send()
        self._regulate()
        if self._has_work and not (self._valve.paused or self._closed):
            self._connection.again()

    def drain(self) -> None:
        if not self._closed:
            self._draining = True
            self._calls.drain()
            self._send()

    def _go_on(self, turn: Turn) -> None:
        """Carry out calls, in order, until one needs another turn, or this one is over."""
        untaken, first = self._untaken, True
        while untaken and (first or not turn.over):
            first = False
            call = untaken.popleft()
            if self._calls.waits(call) and not self._take(call, turn):
                untaken.appendleft(call)
                return

    def _take(self, call: Call, turn: Turn) -> bool:
        """Carry it out; false: it needs another turn."""
        turn.charge(_CALL)
        try:
            answer = self._answer(call, turn)
        except Unfinished:
            return False
        except Failed as why:
            if why.code is Code.UNAUTHENTICATED:
                self._deny(call, why.text)
                return True
            self._calls.fail(call, why.code, why.text)
            if why.code is Code.RESOURCE_EXHAUSTED:
                self._connection.report(Refusal(why.text))
            return True
        self._control.earn(_CALL_FRAMES + (len(call.message) + len(answer)) // 1024)
        if self._container.state.durable >= self._controller.last:
            self._calls.answer(call, answer)
            return True
        self._due.append((self._controller.last, call, answer))
        self._due_bytes += len(answer)
        self._container.flush_after_commit(self)
        if call.timeout is not None:
            self._timers[call] = self._container.clock.callLater(
                call.timeout, self._deadline_passed, call
            )
        return True

    def _answer(self, call: Call, turn: Turn) -> bytes:
        waiting = self._calls.unsent_bytes + self._due_bytes
        if waiting > _UNSENT_BYTES:
            why = Refusal(f"{waiting} bytes of answers that wait", limit=_UNSENT_BYTES)
            raise Failed(Code.RESOURCE_EXHAUSTED, str(why))
        if self._container.broken:
            raise Failed(Code.UNAVAILABLE, "nothing can be stored any more")
        certificate = self._connection.origin.principal
        name = self._controller.authenticate(call.authorization, certificate)
        origin = self._origins.of(name)
        # The container replays only batches of its own protocol.
        ours = origin if origin.protocol == PROTOCOL else None
        rights = self._controller.access.rights(name)
        caller = Caller(call.authority, name, rights, self, ours, turn)
        try:
            return self._controller.call(call.path, call.message, caller)
        except (Failed, Unfinished):
            raise
        except Exception:
            # A bug of the gateway must not leave the client without an answer.
            self._log.failure("{path} failed", path=call.path)
            text = "the controller failed; its log says why"
            raise Failed(Code.INTERNAL, text) from None

    def _deny(self, call: Call, text: str) -> None:
        # Not closed the first time: a client whose connection closes blames the network,
        # and retries for a minute instead of telling its user what is wrong.
        self._bad_credentials += 1
        self._denied[call] = text
        why = Refusal(text, key=_CREDENTIALS, wrong_credentials=True)
        if self._bad_credentials >= _BAD_CREDENTIALS:
            for denied in tuple(self._denied):
                self._fail_denied(denied)
            self._calls.drain()
            why.reply = self._calls.output()
            raise why
        seconds = self._connection.report(why)
        if seconds:
            self._timers[call] = self._container.clock.callLater(
                seconds, self._penalty_over, call
            )
        else:
            self._fail_denied(call)

    def _fail_denied(self, call: Call) -> None:
        self._cancel_timer(call)
        self._calls.fail(call, Code.UNAUTHENTICATED, self._denied.pop(call))

    def _penalty_over(self, call: Call) -> None:
        del self._timers[call]
        self._fail_denied(call)
        self._send()

    def _deadline_passed(self, call: Call) -> None:
        del self._timers[call]
        self._calls.fail(call, Code.DEADLINE_EXCEEDED, "not durable in time")
        self._send()

    # -- called by the container -----------------------------------------------------

    def stored(self, change: Change, stored: Stored) -> None:
        if not self._closed:
            self._connection.count(events=stored.batch.count)

    def flush(self) -> None:
        if self._closed:
            return
        durable = self._container.state.durable
        while self._due and self._due[0][0] <= durable:
            _, call, answer = self._due.popleft()
            self._due_bytes -= len(answer)
            self._cancel_timer(call)
            self._calls.answer(call, answer)
        if self._due:
            self._container.flush_after_commit(self)
        self._send()
        self._regulate()

    def lost(self, why: str) -> None:
        """Fail the calls whose changes are not stored."""
        if self._closed:
            return
        while self._due:
            _, call, _ = self._due.popleft()
            self._cancel_timer(call)
            self._calls.fail(call, Code.UNAVAILABLE, "it could not be stored")
        self._send()

    def _cancel_timer(self, call: Call) -> None:
        timer = self._timers.pop(call, None)
        if timer is not None:
            timer.cancel()

    # -- back pressure, and the end --------------------------------------------------

    def _send(self) -> None:
        output = self._calls.output()
        if output:
            self._connection.write(output)
        self._connection.busy(bool(self._due or self._untaken or self._denied))
        if self._calls.left or (self._draining and not self._calls.open):
            self._hang_up()

    def _regulate(self) -> None:
        """Pause reading while too many calls, also ones that were reset, wait for the disk."""
        if self._closed:
            return
        if self._valve.regulate(len(self._due), feeding=False) and self._has_work:
            self._connection.again()

    @property
    def _has_work(self) -> bool:
        return self._calls.unread or bool(self._untaken)

    def _forget(self) -> None:
        self._valve.close()
        self._container.forget_submitter(self)
        self._due.clear()
        self._untaken.clear()
        self._denied.clear()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._connection.hold(0)
        self._connection.busy(False)
