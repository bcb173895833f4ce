"""The admin port: health, metrics, status and the live page, over HTTP.

    GET /            a live page for people
    GET /healthz     200 while the reactor runs
    GET /readyz      200, or 503 and the reason why no events are taken
    GET /metrics     Prometheus
    GET /api/status  JSON (docs/design.md §6)

On loopback by default, and behind a token wherever other machines can reach it
(`access`).  This package knows no other part of the daemon: the daemon gives it a
`Probe` (`status`), pages and posts of its own, and observes into `metrics.Metrics`.
"""
