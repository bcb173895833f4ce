"""The other gateways of `admin.peers`, and the job among them: asked while the page is open.

Each is asked by one request at a time, which ends after `_ANSWER_SECONDS`, and for an
answer of bounded size.  So one that hangs, drips or sends rubbish is a row that says so.
No gateway asks while its page is not open: those that all have the same list do not keep
one another busy.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from attrs import define, field
from twisted.internet.ssl import (
    PrivateCertificate,
    optionsForClientTLS,
    trustRootFromCertificates,
)
from twisted.logger import Logger
from twisted.web.client import BrowserLikePolicyForHTTPS

from gateway.admin.gateways import Row, row_of, silent
from gateway.admin.status import Probe, as_json
from gateway.config.model import Admin
from gateway.sdk.command import reason
from gateway.sdk.http_client import Backend, Reply, Unreachable
from gateway.sdk.outgoing import certificates, credentials
from gateway.sdk.protocol import Answer

EVERY_SECONDS = 5.0
_LOOKED_SECONDS = 20.0
"""Seconds after a look for which they are asked."""
_ANSWER_SECONDS = 4.0
_ANSWER_BYTES = 4 << 20


@define(eq=False, slots=False)
class _Other:
    """One of them, as far as it is known."""

    address: str
    backend: Backend
    row: Row
    heard_at: float | None = None
    """The time of the last answer, by the reactor's clock."""
    itself: bool = False
    """Whether it is this very gateway: all of them may have the same list."""


class _Certificates(BrowserLikePolicyForHTTPS):
    """Shows *ours* to a server that asks for a certificate."""

    def __init__(self, trust: Any, ours: PrivateCertificate | None) -> None:
        super().__init__(trust)
        self._trust, self._ours = trust, ours

    def creatorForNetloc(self, hostname: bytes, port: int) -> Any:
        return optionsForClientTLS(hostname.decode(), self._trust, self._ours)


@define(eq=False, slots=False)
class Others:
    """*probe* is this gateway's own status."""

    _log = Logger()

    _settings: Admin
    _probe: Probe
    _reactor: Any
    _wall: Callable[[], float] = time.time
    _others: list[_Other] = field(factory=list, init=False)
    _looked_at: float = field(default=float("-inf"), init=False)

    def __attrs_post_init__(self) -> None:
        self._make()

    def configure(self, settings: Admin) -> None:
        """Ask those from now on."""
        before, self._settings = self._settings, settings
        # The files may have other certificates now.
        files = (settings.peers_ca, settings.peers_certificate)
        if before != settings or any(files):
            self.close()
            self._make()

    def close(self) -> None:
        """Let go of connections."""
        for other in self._others:
            other.backend.close()

    def look(self) -> None:
        """Ask each that is not being asked, if there was a look lately; call it every
        few seconds.
        """
        if self._reactor.seconds() - self._looked_at <= _LOOKED_SECONDS:
            for other in self._others:
                if not other.backend.waiting:
                    asked = other.backend.get()
                    asked.addCallbacks(
                        self._answered,
                        self._failed,
                        callbackArgs=(other,),
                        errbackArgs=(other,),
                    )
                    asked.addErrback(
                        lambda why: self._log.failure("another gateway", why)
                    )

    def page(self, _: object) -> Answer:
        """`/api/gateways`."""
        now = self._reactor.seconds()
        first = now - self._looked_at > _LOOKED_SECONDS
        self._looked_at = now
        if first:
            self.look()
        rows = [self._own(), *self._rows(now)]
        body = json.dumps({"gateways": [asdict(one) for one in rows]}).encode()
        return Answer(body, "application/json")

    def _own(self) -> Row:
        told = json.loads(as_json(self._probe()))
        return row_of("this gateway", told, self._wall())

    def _rows(self, now: float) -> list[Row]:
        return [
            one.row
            if one.heard_at is None
            else replace(one.row, heard_seconds=round(now - one.heard_at, 1))
            for one in self._others
            if not one.itself
        ]

    def _make(self) -> None:
        headers, token = {}, self._settings.token
        if token is not None:
            headers["Authorization"] = f"Bearer {token.get_secret_value()}"
        policy = self._policy()
        self._others = [
            _Other(
                address,
                Backend(
                    f"{address}{':' if address.startswith('unix:') else ''}/api/status",
                    self._reactor,
                    seconds=_ANSWER_SECONDS,
                    requests=1,
                    answer_bytes=_ANSWER_BYTES,
                    headers=headers,
                    policy=policy,
                ),
                Row(address=address, level="warning", sentence="It is being asked."),
            )
            for address in self._settings.peers
        ]

    def _policy(self) -> _Certificates:
        """The believed certificates, and ours."""
        settings, trust, ours = self._settings, None, None
        if (ca := settings.peers_ca) is not None:
            try:
                trust = trustRootFromCertificates(certificates(ca))
            except (ValueError, OSError) as why:
                self._unusable("peers_ca", why)
                trust = trustRootFromCertificates([])  # not whom the platform trusts
        if (file := settings.peers_certificate) is not None:
            try:
                ours = credentials(file, settings.peers_private_key)
            except (ValueError, OSError) as why:
                self._unusable("peers_certificate", why)
        return _Certificates(trust, ours)

    def _unusable(self, key: str, why: Exception) -> None:
        self._log.error("admin.{key}: {why}", key=key, why=why)

    def _answered(self, reply: Reply, other: _Other) -> None:
        try:
            row = row_of(other.address, self._told(reply), self._wall())
        except (Unreachable, ValueError) as why:
            self._say(other, str(why))
            return
        own = self._probe().incarnation.id
        other.itself = bool(own) and row.incarnation == own
        other.row, other.heard_at = row, self._reactor.seconds()

    def _failed(self, why: Any, other: _Other) -> None:
        why.trap(Unreachable)
        self._say(other, reason(str(why.value)))

    def _say(self, other: _Other, why: str) -> None:
        before = other.row
        if other.heard_at is not None:
            ago = self._reactor.seconds() - other.heard_at
            before = replace(before, heard_seconds=round(ago, 1))
        other.row = silent(other.address, why, before)

    @staticmethod
    def _told(reply: Reply) -> dict[str, Any]:
        if reply.code == 401:
            raise Unreachable("it asks for another token than admin.token here")
        if reply.code != 200:
            raise Unreachable(f"it answers {reply.code}")
        told: dict[str, Any] = reply.json(dict[str, Any])
        return told
