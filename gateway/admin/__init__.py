"""What an operator and a monitoring system see of the daemon, over HTTP.

    GET /            a live page for people
    GET /healthz     200 while the reactor runs
    GET /readyz      200, or 503 and the reason why no events are taken
    GET /metrics     Prometheus
    GET /api/status  JSON (docs/design.md §6)

Read-only, loopback by default, and behind a token wherever other machines can
reach it (`access`).  This package knows no other part of the daemon: the
composition root hands it a `Probe` (`status`) and observes into `metrics.Metrics`.
"""
