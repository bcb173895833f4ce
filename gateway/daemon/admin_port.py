"""Joins the admin port to the parts of the daemon that its pages are about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gateway import config
from gateway.admin.connections import Guard
from gateway.admin.feed import Feed
from gateway.admin.history import History
from gateway.admin.metrics import Metrics
from gateway.admin.peers import Peers
from gateway.admin.service import admin_site
from gateway.admin.site import AdminSite, page_of
from gateway.admin.status import Probe
from gateway.daemon.listeners import Listeners
from gateway.daemon.protocols import Protocols
from gateway.feeds.live import Tap
from gateway.feeds.page import tap_page
from gateway.net import Penalties, RejectionLog, Rejections, Turns
from gateway.sdk.interfaces import Refusal

__all__ = ["AdminParts", "make_site"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminParts:
    """What the admin port shows, and whom it is to ask."""

    settings: config.Config
    reactor: Any
    metrics: Metrics
    probe: Probe
    history: History
    protocols: Protocols
    tap: Tap
    listeners: Listeners
    """As they are now, whenever that is."""
    rejection_log: RejectionLog
    penalties: Penalties
    turns: Turns


def make_site(parts: AdminParts) -> AdminSite:
    """The admin port's site.  Raises `access.Misconfigured`, `protocols.Broken`."""
    admin, clock = parts.settings.admin, parts.reactor
    recent = parts.rejection_log.recent
    peers = Peers(
        parts.listeners.seen,
        lambda: recent,
        clock.seconds,
    )
    feed = Feed(
        parts.probe,
        parts.history,
        lambda: (recent.serial, peers.rejections_json),
        clock,
    )
    protocols = parts.protocols
    return admin_site(
        admin.listen,
        None if admin.token is None else admin.token.get_secret_value(),
        parts.probe,
        parts.metrics,
        clock,
        _guard(parts),
        posts=protocols.posts(),
        more={
            **{path: page_of(get) for path, get in protocols.gets().items()},
            "/api/tap": tap_page(parts.tap, clock, lambda: parts.listeners.names),
            "/api/feed": feed.page,
            "/api/history": feed.history,
            "/api/connections": page_of(peers.connections),
            "/api/rejections": page_of(peers.rejections),
        },
        trust_loopback=admin.trust_loopback,
    )


def _guard(parts: AdminParts) -> Guard:
    """The admin port logs and slows peers down as the listeners do."""
    rejections = Rejections("admin", "http", parts.rejection_log, lambda _: None)

    def wrong_token(host: str, peer: str) -> float:
        rejections.reported(host, peer, Refusal("wrong token", key="admin.token"))
        parts.metrics.wrong_credentials("admin")
        return parts.penalties.add(host)

    return Guard(parts.turns, rejections.reported, wrong_token)
