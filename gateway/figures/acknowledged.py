"""Figures, panels and conditions of a question: are senders acknowledged?"""

from __future__ import annotations

from gateway.figures.kinds import (
    BYTES,
    COMMIT_SECONDS,
    EVENTS,
    Condition,
    Panel,
    Question,
)
from gateway.sdk.figures import Figure

_RED = "docs/symptoms.md#when-readyz-is-red"

_FIGURES = (
    Figure("ready", "gateway_ready", "1 while events are taken, as `/readyz`",
           look="0 for minutes"),
    Figure("listeners.events", "gateway_events_total{listener,protocol}", "events made durable",
           look="its rate drops to 0 while senders are connected",
           panel="Events made durable, by listener"),
    Figure("listeners.bytes", "gateway_received_bytes_total{listener,protocol}",
           "bytes read from the network",
           look="bytes come and no events: half-received windows", panel="Received"),
    Figure("", "gateway_ack_seconds",
           "time from a batch's last byte to durable: what a sender waits for",
           look="p99 above 0.1 s: see `gateway_journal_commit_seconds`",
           panel="Receipt to acknowledgement", buckets=COMMIT_SECONDS),
    Figure("", "gateway_held_back{reason}",
           "1 for what holds senders back: `disk` (full), `spool` (full), `commit` (fails), `memory`, `stall` (the disk does not answer)"),
    Figure("", "gateway_journal_full", "1 while senders are held back",
           unseen="gateway_held_back says the same, with the reason"),
    Figure("journal.oldest_wait_seconds", "gateway_journal_oldest_wait_seconds",
           "how long the oldest batch has waited to be acknowledged; with `ack: spool` that is `spool.roll_interval` as a rule",
           look="above 1 s: the disk is slow; `/readyz` is red from `journal.stall_after` (5 s) on",
           panel="Oldest batch without an acknowledgement"),
    Figure("", "gateway_journal_commit_seconds",
           "time of `write` and `fdatasync` for one group commit",
           look="p99 above 0.1 s: the disk is slow or shared",
           panel="Commit of the journal", buckets=COMMIT_SECONDS),
    Figure("", "gateway_journal_commit_events", "events that share one group commit",
           look="it rises with load; 1 under load means senders wait for each event",
           buckets=EVENTS),
    Figure("", "gateway_journal_commit_bytes", "bytes of one group commit", buckets=BYTES),
    Figure("journal.durable_lsn", "gateway_journal_durable_lsn", "the newest event that survives a power cut"),
    Figure("memory.held_bytes", "gateway_held_bytes",
           "unfinished input and unread output of all connections, with what is read ahead; at most half of `journal.memory_bytes`",
           card="in memory", panel="Messages that arrive", legend="bytes"),
    Figure("memory.waiting", "gateway_waiting_connections",
           "connections that are not read, as all hold so much that they go on one after the other",
           look="for minutes: raise `journal.memory_bytes`",
           card="connections wait for memory",
           panel="Messages that arrive", legend="connections wait"),
)  # fmt: skip

_PER_SECOND = "sum by (instance) (rate(gateway_journal_commit_%s[$__rate_interval]))"
_PANELS = (
    Panel("Senders are held back by", "Nothing, while senders go on.",
          [("gateway_held_back == 1", "{{instance}} {{reason}}")],
          kind="state-timeline"),
    Panel("Events in a commit", "They share one sync.",
          [(f"{_PER_SECOND % 'events_sum'} / {_PER_SECOND % 'events_count'}",
            "{{instance}}")]),
    Panel("Written to the journal", "Bytes a second.",
          [(_PER_SECOND % "bytes_sum", "{{instance}}")], "Bps"),
)  # fmt: skip

_CONDITIONS = (
    Condition("GatewayDown", "page", "2m", 'up{job="gateway"} == 0',
              "The gateway does not answer; senders keep their events, up to their own limits.",
              "look whether the process runs (systemctl status gateway, kubectl get pods)",
              "Its log says why it ended or does not start.", _RED),
    Condition("GatewayNotReady", "page", "5m",
              "gateway_ready == 0 unless on (instance) gateway_journal_full == 1",
              "The gateway runs and takes no events, because it starts, stops, or waits for something.",
              "ask it why with curl localhost:8080/readyz", runbook=_RED),
    # While the disk hangs batches wait, in time or in memory; where something else
    # holds senders back they wait for that.
    Condition("GatewayDiskHangs", "page", "30s",
              """
              gateway_journal_oldest_wait_seconds > 5
              and on (instance) gateway_held_back{reason=~"stall|memory"} == 1
              """,
              "The disk of data_dir does not answer; nothing is acknowledged until it does.",
              "dmesg says more about the disk",
              "Look at it, its controller and the hypervisor (iostat).", _RED),
    Condition("GatewayHoldsBack", "morning", "5m",
              """
              max by (instance, reason) (gateway_held_back{reason=~"memory|commit"}) == 1
              unless on (instance) gateway_journal_oldest_wait_seconds > 5
              """,
              "Senders are held back for minutes, because the disk is slower than they are, or commits fail.",
              "compare gateway_journal_commit_seconds with what the disk should do",
              "The log has failures.", _RED),
    Condition("GatewaySlowAcks", "morning", "10m",
              """
              histogram_quantile(0.99, sum by (le, instance) (rate(gateway_ack_seconds_bucket[5m]))) > 0.5
              unless on (instance) gateway_journal_full == 1
              """,
              "One acknowledgement in a hundred takes more than half a second.",
              "look at gateway_journal_commit_seconds; if it is as slow, it is the disk",
              runbook="docs/symptoms.md#when-writers-hang-or-are-sent-away"),
)  # fmt: skip

ACKNOWLEDGED = Question("Are senders acknowledged?", _FIGURES, _PANELS, _CONDITIONS)
