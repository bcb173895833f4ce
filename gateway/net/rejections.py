"""Counts and logs the connections that a listener rejects, and those that fail.

A peer that breaks a rule, and a protocol whose code raises, end one connection each.
All of them are counted; lines in the log are rate-limited (`rejection_log`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from attrs import define
from twisted.logger import Logger
from twisted.python.failure import Failure

from gateway.net.rejection_log import RejectionLog
from gateway.sdk.interfaces import Refusal

_MAX_ERROR_TEXT = 500
_MAX_TRACEBACKS = 1000

_Place = tuple[type[BaseException], str, int]


@define(eq=False, slots=False)
class Rejections:
    """The rejections of one listener.

    *rate* is shared by all listeners.  *on_refused* is called with the configuration key
    of every refusal, None if it has none.
    """

    _log = Logger()

    _listener: str
    _protocol: str
    _rate: RejectionLog
    _on_refused: Callable[[str | None], None]

    def __attrs_post_init__(self) -> None:
        self.counts: Counter[str] = Counter()
        """Counts by reason."""
        self._traced: set[_Place] = set()

    def count(self, reason: str) -> None:
        """Count a connection that needs no line in the log."""
        self.counts[reason] += 1

    def refused(self, host: str, peer: str, why: Refusal, reason: str) -> None:
        """Count and log a connection that broke a rule."""
        self.count(reason)
        self._on_refused(why.key)
        self._warn("{listener}: {peer} refused: {why}", host, peer, why)

    def reported(self, host: str, peer: str, why: Refusal) -> None:
        """Log what a peer did that does not end its connection."""
        self._warn("{listener}: {peer}: {why}", host, peer, why)

    def _warn(self, text: str, host: str, peer: str, why: Refusal) -> None:
        self._rate.note(host, self._listener, why.rule, peer, str(why), why.key)
        if self._rate.admit(host, self._listener, why.rule):
            self._log.warn(
                text,
                listener=self._listener,
                peer=peer,
                why=str(why),
                rule=why.rule,
                limit=why.limit,
                key=why.key,
            )

    def failed(self, host: str, peer: str, what: str, error: BaseException) -> None:
        """Count and log a connection that ended because *what* raised *error*.

        The first line about each place in the code comes with its traceback.
        """
        self.count("failure")
        rule = f"{what} raised {type(error).__name__}"
        self._rate.note(host, self._listener, rule, peer, rule, None)
        if not self._rate.admit(host, self._listener, rule):
            return
        failure = Failure(error)
        self._log.error(
            "{listener}: {peer} dropped: {what} of {protocol} raised {error}",
            listener=self._listener,
            protocol=self._protocol,
            peer=peer,
            what=what,
            error=_text(failure),
            **({"log_failure": failure} if self._is_new(error) else {}),
        )

    def _is_new(self, error: BaseException) -> bool:
        place = _place(error)
        if place in self._traced or len(self._traced) >= _MAX_TRACEBACKS:
            return False
        self._traced.add(place)
        return True


def _text(failure: Failure) -> str:
    kind, text = type(failure.value).__name__, failure.getErrorMessage()
    return f"{kind}: {text[:_MAX_ERROR_TEXT]}" if text else kind


def _place(error: BaseException) -> _Place:
    """Where it was raised."""
    file, line = "", 0
    traceback = error.__traceback__
    while traceback is not None:
        file, line = traceback.tb_frame.f_code.co_filename, traceback.tb_lineno
        traceback = traceback.tb_next
    return type(error), file, line
