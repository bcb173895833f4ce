"""Figures of a hub (`gateway.sdk.figures`)."""

from __future__ import annotations

from gateway.sdk.figures import Figure, StatusSection

ARRIVALS = StatusSection(
    "arrivals",
    "Files that other gateways bring",
    (
        Figure("arrivals.connections", "gateway_arrivals_connections",
               "gateways that are connected and [forward their files](edge.md)",
               look="one is missing: that edge says why",
               card="gateways connected",
               panel="Files of other gateways", legend="edges connected"),
        Figure("arrivals.files", "gateway_arrivals_files_total",
               "files of other gateways that were taken",
               card="files", panel="Files of other gateways", legend="files"),
        Figure("arrivals.bytes", "gateway_arrivals_bytes_total",
               "bytes of the files of other gateways",
               card="bytes", panel="Bytes of other gateways", legend="bytes"),
        Figure("arrivals.events", "gateway_arrivals_events_total",
               "events in the files of other gateways",
               card="events", panel="Bytes of other gateways", legend="events"),
        Figure("arrivals.refused", "gateway_arrivals_refused_total",
               "requests of other gateways that were refused",
               look="it grows: a wrong token, or two gateways of one name; the log says which",
               card="refused", panel="Files of other gateways", legend="refused", rare=True),
    ),
    "with a listener that takes files of other gateways",
)  # fmt: skip
