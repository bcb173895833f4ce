"""Figures of Lumberjack (`gateway.sdk.figures`)."""

from __future__ import annotations

from gateway.sdk.figures import Figure, StatusSection

WINDOWS = StatusSection(
    "lumberjack",
    "",
    (
        Figure("lumberjack.parts", "gateway_lumberjack_window_parts_total",
               "parts of windows that were stored before the rest came, or without it. That is each second, if frames come one by one; before a new `W`; as the gateway stops; or as they were too large for one batch",
               look="it grows as fast as windows come: writers that send less than they announce; without need, or `lumberjack-protocol`",
               panel="Parts of windows", legend="parts"),
        Figure("lumberjack.cut_events", "gateway_lumberjack_cut_events_total",
               "events stored as parts of windows whose connection ended before the rest came: a writer that keeps no account of parts sends them again",
               look="it grows much: connections of large or slow windows break; what was sent again is [twice](guarantees.md)",
               panel="Parts of windows", legend="events of cut windows"),
    ),
    "with a Lumberjack listener",
)  # fmt: skip
