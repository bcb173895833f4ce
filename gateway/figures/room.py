"""Figures, panels and conditions of a question: is room left?"""

from __future__ import annotations

from gateway.figures.kinds import Condition, Panel, Question
from gateway.sdk.figures import Figure

_RED = "docs/symptoms.md#when-readyz-is-red"
_STAY = "docs/consumers.md#how-long-files-stay"
_NOT_FULL = 'unless on (instance) gateway_held_back{reason="disk"} == 1'
_GROWS = "see what grows: journal, spool, retained/, or something else on that disk"
_GOES = "What the archive holds goes by itself before, not with spool.after keep."

_FIGURES = (
    Figure("disk.room_bytes", "gateway_disk_room_bytes",
           "what events may still take on the disk of `data_dir` before senders are held back: with what leaves the archive when the disk is short, without what is kept for acknowledged events",
           card="room for events", panel="Disk of data_dir", legend="room"),
    Figure("disk.free_bytes", "gateway_disk_free_bytes", "free on the disk of `data_dir`",
           card="free", panel="Disk of data_dir", legend="free"),
    Figure("freshness.room_seconds", "gateway_spool_room_seconds",
           "time until senders are held back, at the rate of the last minute; only there while what waits for Spark grows",
           look="below what it takes you to mend the job"),
    Figure("spool.bytes", "gateway_spool_bytes",
           "bytes that wait for Spark; with a bucket, for their upload",
           panel="Spool", legend="waits"),
    Figure("spool.limit_bytes", "gateway_spool_limit_bytes",
           "limit of the spool, `spool.max_bytes`, where senders are held back",
           panel="Spool", legend="spool.max_bytes"),
    Figure("journal.bytes", "gateway_journal_bytes",
           "journal on disk; with Pravega or RS.io some 128 MiB are usual, which wait for a checkpoint",
           look="it grows while the spool does not: publishing or a checkpoint fails, see the log",
           panel="Journal", legend="all"),
    Figure("state.kept_bytes", "gateway_state_kept_bytes",
           "published journal segments that stay until state is saved, a part of `gateway_journal_bytes`",
           look="far above both 128 MiB and eight times `gateway_state_bytes`",
           card="journal kept until the next", panel="Journal", legend="until state is saved"),
    Figure("state.bytes", "gateway_state_bytes",
           "what protocols remember beside their events, in `state/`",
           look="it grows without end: idle Pravega writers and tables that nobody clears",
           card="on disk", panel="State"),
    Figure("archive.bytes", "gateway_archive_bytes",
           "bytes that Spark has committed, until `spool.retention`",
           look="the disk fills: shorten `spool.retention`, or set `spool.archive_bytes`",
           panel="Archive"),
    Figure("archive.files", "gateway_archive_files",
           "files that Spark has committed, until `spool.retention`",
           panel="Files kept", legend="archive"),
    Figure("retained.files", "gateway_retained_files",
           "files with what streams keep of those that left the archive, in `retained/`; as of the last look, a minute ago at most",
           panel="Files kept", legend="retained"),
    Figure("retained.bytes", "gateway_retained_bytes",
           "bytes of the files in `retained/`",
           look="the disk fills: see `gateway_pravega_retained_bytes`",
           card="on disk", panel="What streams keep on disk"),
    Figure("consumers.oldest_seconds", "gateway_consumer_oldest_seconds{consumer}",
           "for how long the oldest file has been there that a consumer has not read",
           panel="Consumers"),
    Figure("consumers.files", "gateway_consumer_files{consumer}",
           "files that one of `spool.consumers` has not read, in the archive or the bucket; as of the last look, a minute ago at most",
           look="it rises: that job is too slow, or away",
           card="files not read", panel="Files not read by consumers", legend="not read"),
    Figure("consumers.bytes", "gateway_consumer_bytes{consumer}",
           "bytes of the files that a consumer has not read",
           panel="Not read by consumers", legend="not read"),
    Figure("consumers.held_files", "gateway_consumer_held_files{consumer}",
           "files that stay for a consumer beyond `spool.retention`",
           look="any", panel="Files not read by consumers", legend="stay"),
    Figure("consumers.held_bytes", "gateway_consumer_held_bytes{consumer}",
           "bytes of the files that stay for a consumer beyond `spool.retention`",
           panel="Not read by consumers", legend="stay"),
    Figure("consumers.missed_files", "gateway_consumer_missed_files_total{consumer}",
           "files that left for want of room (`spool.archive_bytes`, a short disk) before a consumer had read them",
           look="any", panel="Files not read by consumers", legend="missed", rare=True),
    Figure("listeners.connections", "gateway_connections{listener,protocol}", "connections that are open now",
           look="it nears `limits.connections`", panel="Connections", legend="open"),
    Figure("listeners.connections_limit", "gateway_connections_limit{listener,protocol}",
           "limit of a listener's connections, `limits.connections`",
           panel="Connections", legend="limit"),
)  # fmt: skip

_PANELS = (
    Panel("Full in",
          "The room of the disk, as it has gone for half an hour; nothing while it does not.",
          [("gateway_disk_room_bytes / (-deriv(gateway_disk_room_bytes[30m]) > 0)",
            "{{instance}}")], "s"),
    Panel("File descriptors", "Each connection is one.",
          [("process_open_fds", "{{instance}}"), ("min(process_max_fds)", "limit")]),
)  # fmt: skip

_CONDITIONS = (
    Condition("GatewayDiskFull", "page", "1m", 'gateway_held_back{reason="disk"} == 1',
              "The disk of data_dir is full; senders wait, nothing is lost.",
              "make room elsewhere on that disk, and delete nothing in journal/, spool/ or state/",
              "It goes on by itself.", _RED),
    Condition("GatewayDiskFillsSoon", "page", "10m",
              f"""
              predict_linear(gateway_disk_room_bytes[30m], 3600) < 0
              {_NOT_FULL}
              """,
              "The disk of data_dir is full within the hour, as it fills now; then senders wait.",
              _GROWS, _GOES, _RED),
    Condition("GatewayDiskFills", "morning", "1h",
              f"""
              predict_linear(gateway_disk_room_bytes[6h], 86400) < 0
              unless on (instance) predict_linear(gateway_disk_room_bytes[30m], 3600) < 0
              {_NOT_FULL}
              """,
              "The disk of data_dir is full within a day, as it has filled for hours.",
              _GROWS, _GOES, _RED),
    Condition("GatewaySpoolFull", "page", "1m", 'gateway_held_back{reason="spool"} == 1',
              "The spool is full, because the Spark job, the bucket or the hub is down or too slow; senders wait, nothing is lost.",
              "mend or start the job, or reach the bucket or the hub",
              "To gain time raise spool.max_bytes, if the disk has room.", _RED),
    Condition("GatewaySpoolFills", "morning", "10m",
              """
              gateway_spool_bytes / gateway_spool_limit_bytes > 0.5
              and deriv(gateway_spool_bytes[30m]) > 0
              unless on (instance) gateway_held_back{reason="spool"} == 1
              unless on (instance) gateway_spark_up == 0
              unless on (instance) gateway_bucket_away == 1
              unless on (instance) gateway_forward_connected == 0
              """,
              "The spool is half full and grows, as the job, the bucket or the hub does not keep up; senders wait once it is full.",
              "give the job more cores or memory, or raise spark.max_bytes_per_trigger",
              "Where files go to a bucket or a hub, look at the line there, spool.s3.uploads and forward.rate.",
              "docs/spark.md#settings"),
    Condition("GatewayRetainedGrows", "morning", "30m",
              """
              gateway_pravega_retained_bytes > 0.8 * gateway_pravega_retained_limit_bytes
              or (gateway_retained_bytes > gateway_disk_room_bytes and deriv(gateway_retained_bytes[6h]) > 0)
              """,
              "Streams keep nearly as much as they may, or more than the disk has room for; then appends are refused.",
              "give streams a retention policy, or raise options.retained_bytes",
              "gateway_pravega_stream_retained_bytes says which have most.",
              "docs/pravega.md#retention"),
    Condition("GatewayConsumerBehind", "morning", "10m", "gateway_consumer_held_files > 0",
              "One of spool.consumers has not read files whose spool.retention is over; they stay for it and take room.",
              "start that consumer, or take its name out of spool.consumers", runbook=_STAY),
    Condition("GatewayConnectionsNearLimit", "morning", "5m",
              """
              sum by (instance, listener) (gateway_connections)
              > 0.9 * sum by (instance, listener) (gateway_connections_limit)
              or process_open_fds{job="gateway"} > 0.9 * process_max_fds{job="gateway"}
              """,
              "A listener has nine in ten of the connections that it may have; who comes when there are no more is sent away.",
              "raise limits.connections, and LimitNOFILE= above their sum",
              "Or end what holds connections without need: /api/connections says who.",
              "docs/symptoms.md#when-writers-hang-or-are-sent-away"),
    Condition("GatewayStateNotSaved", "morning", "10m",
              'increase(gateway_state_saves_total{outcome="failed"}[10m]) > 2',
              "What protocols remember can not be saved; the journal keeps growing meanwhile.",
              "read in the log why: mostly permissions or room in state/",
              runbook="docs/operations.md#state-and-checkpoints"),
)  # fmt: skip

ROOM = Question("Is room left?", _FIGURES, _PANELS, _CONDITIONS)
