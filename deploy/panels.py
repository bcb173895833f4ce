"""The panels of the dashboard, by the question that they answer.

Queries are written without their selectors: `monitoring.py` adds those of the dashboard's
variables to every metric, and to each panel's text the alerts that look at the same
metrics.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["LEFT_OUT", "QUESTIONS", "Panel"]


@dataclass(frozen=True, slots=True)
class Panel:
    """*queries* are (PromQL, legend)."""

    title: str
    text: str
    queries: tuple[tuple[str, str], ...]
    unit: str = "short"
    kind: Literal["timeseries", "stat", "state-timeline"] = "timeseries"
    red_from: float | None = None
    """Of a stat: bad from there on, …"""
    red_below: float | None = None
    """… or bad below that."""
    words: tuple[str, str] | None = None
    """Of a stat: what 0 and 1 mean."""


def _quantiles(metric: str) -> tuple[tuple[str, str], ...]:
    return tuple(
        (
            (
                f"histogram_quantile({part}, sum by (le, instance) "
                f"(rate({metric}_bucket[$__rate_interval])))"
            ),
            f"{{{{instance}}}} {name}",
        )
        for part, name in ((0.5, "p50"), (0.99, "p99"))
    )


def _rate(metric: str, by: str) -> tuple[str, str]:
    legend = " ".join(f"{{{{{label}}}}}" for label in by.split(", "))
    return f"sum by ({by}) (rate({metric}[$__rate_interval]))", legend


_BY_INSTANCE = "{{instance}}"

QUESTIONS: dict[str, tuple[Panel, ...]] = {
    "Is the table fresh?": (
        Panel(
            "Oldest event in no table",
            "How far the tables are behind what was acknowledged: the worst node.",
            (("max(gateway_freshness_seconds)", ""),),
            "s",
            "stat",
            red_from=60,
        ),
        Panel(
            "Spark job",
            "Whether it runs, or starts.",
            (("min(gateway_spark_up)", ""),),
            kind="stat",
            red_below=1,
            words=("silent", "runs"),
        ),
        Panel(
            "Gateways",
            "Whether every one takes events; of one that does not /readyz says why.",
            (("min(gateway_ready)", ""),),
            kind="stat",
            red_below=1,
            words=("not ready", "take events"),
        ),
        Panel(
            "Events made durable",
            "A second, of all listeners.",
            (("sum(rate(gateway_events_total[$__rate_interval]))", ""),),
            "ops",
            "stat",
        ),
        Panel(
            "Until senders wait",
            "At the rate of the last minute; nothing while the spool does not grow.",
            (("min(gateway_spool_room_seconds)", ""),),
            "s",
            "stat",
            red_below=1800,
        ),
        Panel(
            "What is wrong",
            "Alerts of conf/alerts.yml that fire; docs/operations.md has a row for each.",
            (
                (
                    'ALERTS{alertname=~"Gateway.*",alertstate="firing"}',
                    "{{alertname}} {{instance}}",
                ),
            ),
            kind="state-timeline",
        ),
        Panel(
            "Freshness of each node",
            "Age of its oldest event that is in no table, stored or not.",
            (("gateway_freshness_seconds", "{{node}}"),),
            "s",
        ),
        Panel(
            "Freshness of each listener",
            "The same, of the events of one listener.",
            (("gateway_listener_freshness_seconds", "{{instance}} {{listener}}"),),
            "s",
        ),
        Panel(
            "Who has to act next",
            "For the oldest event; sender: none waits in here.",
            (("gateway_freshness_held == 1", "{{instance}} {{by}}"),),
            kind="state-timeline",
        ),
        Panel(
            "Behind the tables",
            "Age of the oldest event in no table, as each node knows it; and of the oldest "
            "file in none, as the job says.",
            (
                ("gateway_lake_lag_seconds", "node {{node}}"),
                ("gateway_spark_waiting_seconds", "job"),
            ),
            "s",
        ),
        Panel(
            "Files that wait",
            "For Spark, or for their upload, and what the job has before it.",
            (
                ("gateway_spool_files", "spool of {{instance}}"),
                ("gateway_spark_waiting_files", "before the job"),
            ),
        ),
        Panel(
            "Spark's batches",
            "How long the last one took, and how long ago it was committed.",
            (
                ("gateway_spark_last_batch_seconds", "it took"),
                ("time() - gateway_spark_last_batch_timestamp_seconds", "ago"),
            ),
            "s",
        ),
        Panel(
            "Rows committed",
            "A second; misfits have a value that did not fit its column.",
            (
                ("sum(rate(gateway_spark_rows_total[$__rate_interval]))", "rows"),
                ("sum(rate(gateway_spark_misfits_total[$__rate_interval]))", "misfits"),
            ),
            "ops",
        ),
        Panel(
            "The job",
            "Runs or starts; takes batches; ended, unasked, since its last batch.",
            (
                ("gateway_spark_up", "up"),
                ("gateway_spark_ready", "ready"),
                ("gateway_spark_failures", "failures"),
            ),
        ),
        Panel(
            "Newest lsn in a table",
            "It stands while nothing is committed.",
            (("gateway_lake_committed_lsn", "{{node}} {{instance}}"),),
        ),
        Panel(
            "Durable, in no file yet",
            "Events that wait for a spool file; with a bucket, for an object.",
            (
                (
                    "gateway_journal_durable_lsn - gateway_spool_published_lsn",
                    _BY_INSTANCE,
                ),
            ),
        ),
        Panel(
            "Writing a spool file",
            "Decode, write, fsync and rename.",
            _quantiles("gateway_spool_publish_seconds"),
            "s",
        ),
        Panel(
            "Uploads",
            "Attempts to put a file into the bucket, a second.",
            (
                _rate("gateway_bucket_uploads_total", "instance, outcome"),
                ("gateway_bucket_away", "{{instance}} bucket away"),
                ("gateway_bucket_stuck_files", "{{instance}} stuck files"),
            ),
        ),
        Panel(
            "An upload",
            "How long one takes that goes well.",
            _quantiles("gateway_bucket_upload_seconds"),
            "s",
        ),
        Panel(
            "Uploaded",
            "To the bucket, a second.",
            (_rate("gateway_bucket_bytes_total", "instance"),),
            "Bps",
        ),
    ),
    "Are senders acknowledged?": (
        Panel(
            "Events made durable",
            "A second, by listener.",
            (_rate("gateway_events_total", "instance, listener"),),
            "ops",
        ),
        Panel(
            "Received",
            "From the network, by listener.",
            (_rate("gateway_received_bytes_total", "instance, listener"),),
            "Bps",
        ),
        Panel(
            "Receipt to acknowledgement",
            "What a sender waits for.",
            _quantiles("gateway_ack_seconds"),
            "s",
        ),
        Panel(
            "Senders are held back by",
            "Nothing, while senders go on.",
            (("gateway_held_back == 1", "{{instance}} {{reason}}"),),
            kind="state-timeline",
        ),
        Panel(
            "Oldest batch without an acknowledgement",
            "With ack: spool it waits for its file.",
            (("gateway_journal_oldest_wait_seconds", _BY_INSTANCE),),
            "s",
        ),
        Panel(
            "Commit of the journal",
            "Write and fdatasync: the disk.",
            _quantiles("gateway_journal_commit_seconds"),
            "s",
        ),
        Panel(
            "Events in a commit",
            "They share one sync.",
            (
                (
                    (
                        "sum by (instance) (rate(gateway_journal_commit_events_sum[$__rate_interval]))"
                        " / sum by (instance) (rate(gateway_journal_commit_events_count[$__rate_interval]))"
                    ),
                    _BY_INSTANCE,
                ),
            ),
        ),
        Panel(
            "Written to the journal",
            "Bytes a second.",
            (
                (
                    "sum by (instance) (rate(gateway_journal_commit_bytes_sum[$__rate_interval]))",
                    _BY_INSTANCE,
                ),
            ),
            "Bps",
        ),
        Panel(
            "Messages that arrive",
            "Unfinished input and unread output in memory, and connections that wait for it.",
            (
                ("gateway_held_bytes", "{{instance}} bytes"),
                ("gateway_waiting_connections", "{{instance}} connections wait"),
            ),
            "bytes",
        ),
    ),
    "Is room left?": (
        Panel(
            "Disk of data_dir",
            "Free, and what events may still take before senders are held back: with the "
            "archive, which goes when the disk is short, without what is spoken for.",
            (
                ("gateway_disk_room_bytes", "{{instance}} room"),
                ("gateway_disk_free_bytes", "{{instance}} free"),
            ),
            "bytes",
        ),
        Panel(
            "Full in",
            "The room of the disk, as it has gone for half an hour; nothing while it does not.",
            (
                (
                    "gateway_disk_room_bytes / (-deriv(gateway_disk_room_bytes[30m]) > 0)",
                    _BY_INSTANCE,
                ),
            ),
            "s",
        ),
        Panel(
            "Spool",
            "What waits for Spark, or for the bucket, and spool.max_bytes, where senders wait.",
            (
                ("gateway_spool_bytes", _BY_INSTANCE),
                ("min(gateway_spool_limit_bytes)", "spool.max_bytes"),
            ),
            "bytes",
        ),
        Panel(
            "Journal",
            "On disk, and the part that waits for a checkpoint.",
            (
                ("gateway_journal_bytes", _BY_INSTANCE),
                ("gateway_state_kept_bytes", "{{instance}} until state is saved"),
            ),
            "bytes",
        ),
        Panel(
            "Archive",
            "What Spark has committed, until spool.retention.",
            (("gateway_archive_bytes", _BY_INSTANCE),),
            "bytes",
        ),
        Panel(
            "Files kept",
            "In the archive, and in retained/ for streams.",
            (
                ("gateway_archive_files", "{{instance}} archive"),
                ("gateway_retained_files", "{{instance}} retained"),
            ),
        ),
        Panel(
            "Consumers",
            "How long the oldest file waits that one of spool.consumers has not read.",
            (("gateway_consumer_oldest_seconds", "{{instance}} {{consumer}}"),),
            "s",
        ),
        Panel(
            "Not read by consumers",
            "All of it, and what stays beyond spool.retention.",
            (
                ("gateway_consumer_bytes", "{{instance}} {{consumer}} not read"),
                ("gateway_consumer_held_bytes", "{{instance}} {{consumer}} stays"),
            ),
            "bytes",
        ),
        Panel(
            "Files not read by consumers",
            "Likewise, and those that left unread for want of room.",
            (
                ("gateway_consumer_files", "{{instance}} {{consumer}} not read"),
                ("gateway_consumer_held_files", "{{instance}} {{consumer}} stay"),
                (
                    "increase(gateway_consumer_missed_files_total[$__rate_interval])",
                    "{{instance}} {{consumer}} missed",
                ),
            ),
        ),
        Panel(
            "What streams keep",
            "Events that readers may ask for, options.retained_bytes, and their files in "
            "retained/.",
            (
                ("gateway_pravega_retained_bytes", "{{instance}} events"),
                ("gateway_pravega_retained_limit_bytes", "{{instance}} limit"),
                ("gateway_retained_bytes", "{{instance}} retained/"),
            ),
            "bytes",
        ),
        Panel(
            "Streams that keep most",
            "Ten, and all others.",
            (("gateway_pravega_stream_retained_bytes", "{{stream}}"),),
            "bytes",
        ),
        Panel(
            "Connections",
            "Open, and limits.connections.",
            (
                ("gateway_connections", "{{instance}} {{listener}}"),
                ("gateway_connections_limit", "{{instance}} {{listener}}, limit"),
            ),
        ),
        Panel(
            "File descriptors",
            "Each connection is one.",
            (
                ("process_open_fds", _BY_INSTANCE),
                ("min(process_max_fds)", "limit"),
            ),
        ),
        Panel(
            "State",
            "What protocols remember, on disk.",
            (("gateway_state_bytes", _BY_INSTANCE),),
            "bytes",
        ),
    ),
    "Is all there, once?": (
        Panel(
            "Last audit",
            "Whether every acknowledged event was there, exactly once.",
            (("min(gateway_audit_complete)", ""),),
            kind="stat",
            red_below=1,
            words=("INCOMPLETE", "complete"),
        ),
        Panel(
            "Since the last audit",
            "That came to its end; spark.audit.every is how often one should.",
            (("min(gateway_audit_age_seconds)", ""),),
            "s",
            "stat",
        ),
        Panel(
            "What audits found",
            "Events that are nowhere, in so many holes; that are there twice; ends of lost "
            "disks that nobody knows; files that can not be read.",
            (
                ("gateway_audit_missing_events", "missing"),
                ("gateway_audit_holes", "holes"),
                ("gateway_audit_doubled_events", "doubled"),
                ("gateway_audit_unknown_ends", "unknown ends"),
                ("gateway_audit_problem_files", "files"),
            ),
        ),
        Panel(
            "What an audit takes",
            "How long, and whether the last attempt came to its end.",
            (
                ("gateway_audit_seconds", "seconds"),
                ("gateway_audit_unfinished", "unfinished"),
            ),
        ),
        Panel(
            "Events audited",
            "All that were acknowledged until then.",
            (("gateway_audit_events", "events"),),
        ),
        Panel(
            "Trouble of the disk",
            "Failed writes and syncs of the journal, and records that came back damaged.",
            (
                (
                    "sum by (instance, operation) (increase(gateway_journal_failures_total[$__rate_interval]))",
                    "{{instance}} {{operation}}",
                ),
                (
                    "sum by (instance) (increase(gateway_journal_corrupt_records_total[$__rate_interval]))",
                    "{{instance}} damaged records",
                ),
            ),
        ),
        Panel(
            "Files in poison",
            "Spool files that the job could not read.",
            (("gateway_spark_holes", "files"),),
        ),
        Panel(
            "Removed from the tables",
            "Events of days that expired (spark.retention), and that were deleted on purpose.",
            (
                ("gateway_lake_expired_events_total", "expired"),
                ("gateway_lake_deleted_events_total", "deleted"),
                ("sum(gateway_lake_expired_days_total)", "expired days"),
                (
                    "gateway_lake_deletions_unfinished",
                    "deletions that are not finished",
                ),
            ),
        ),
        Panel(
            "Flawed events",
            "They are stored, and in lake/quarantine.",
            (_rate("gateway_flawed_events_total", "flaw"),),
            "ops",
        ),
        Panel(
            "State saved",
            "Attempts, and how long ago the last good one was.",
            (
                (
                    "sum by (outcome) (increase(gateway_state_saves_total[$__rate_interval]))",
                    "{{outcome}}",
                ),
                (
                    "time() - gateway_state_saved_timestamp_seconds",
                    "{{instance}} seconds ago",
                ),
            ),
        ),
        Panel(
            "Parts of windows",
            "Of Lumberjack: stored before the rest came; those that were cut their writer "
            "sends again.",
            (
                _rate("gateway_lumberjack_window_parts_total", "instance"),
                (
                    "sum by (instance) (rate(gateway_lumberjack_cut_events_total[$__rate_interval]))",
                    "{{instance}} events of cut windows",
                ),
            ),
            "ops",
        ),
        Panel(
            "The hub",
            "Of an edge: connected, refused, for how long away; files that wait there.",
            (
                ("gateway_forward_connected", "{{instance}} connected"),
                ("gateway_forward_refused", "{{instance}} refused"),
                ("gateway_forward_hub_place", "{{instance}} place of its hub"),
                ("gateway_forward_away_seconds", "{{instance}} away for"),
                ("gateway_forward_hub_waiting_files", "{{instance}} files wait there"),
                (
                    "increase(gateway_forward_connections_total[$__rate_interval])",
                    "{{instance}} connections",
                ),
            ),
        ),
        Panel(
            "Files for the hub",
            "Of an edge: what the hub has told to have; files that could not be read.",
            (
                _rate("gateway_forward_files_total", "instance"),
                (
                    "sum by (instance) (rate(gateway_forward_events_total[$__rate_interval]))",
                    "{{instance}} events",
                ),
                (
                    "sum by (instance) (rate(gateway_forward_bytes_total[$__rate_interval]))",
                    "{{instance}} bytes",
                ),
                (
                    "increase(gateway_forward_set_aside_files_total[$__rate_interval])",
                    "{{instance}} set aside",
                ),
            ),
            "ops",
        ),
        Panel(
            "Files of other gateways",
            "Of edges that forward theirs: taken, and connections that were refused.",
            (
                _rate("gateway_arrivals_files_total", "instance"),
                ("gateway_arrivals_connections", "{{instance}} edges connected"),
                (
                    "increase(gateway_arrivals_refused_total[$__rate_interval])",
                    "{{instance}} refused",
                ),
            ),
            "ops",
        ),
        Panel(
            "Bytes of other gateways",
            "What the files of edges bring.",
            (
                _rate("gateway_arrivals_bytes_total", "instance"),
                (
                    "sum by (instance) (rate(gateway_arrivals_events_total[$__rate_interval]))",
                    "{{instance}} events",
                ),
            ),
        ),
        Panel(
            "Names of RS.io senders",
            "Remembered; fenced, as two had one name; forgotten, so that they can not resume.",
            (
                ("gateway_rsio_names", "{{instance}} names"),
                (
                    "increase(gateway_rsio_fenced_total[$__rate_interval])",
                    "{{instance}} fenced",
                ),
                (
                    "increase(gateway_rsio_forgotten_names_total[$__rate_interval])",
                    "{{instance}} forgotten",
                ),
            ),
        ),
    ),
    "Who is turned away?": (
        Panel(
            "Rejected",
            "Before their protocol began, by reason.",
            (_rate("gateway_rejected_connections_total", "instance, reason"),),
            "ops",
        ),
        Panel(
            "Closed for what they sent",
            "By the limit's key.",
            (_rate("gateway_refusals_total", "instance, key"),),
            "ops",
        ),
        Panel(
            "Wrong tokens and passwords",
            "By listener; admin is the admin port.",
            (_rate("gateway_wrong_credentials_total", "instance, listener"),),
            "ops",
        ),
        Panel(
            "Pravega, denied",
            "Commands and calls that options.access does not allow, by permission.",
            (_rate("gateway_pravega_denied_total", "instance, permission"),),
            "ops",
        ),
        Panel(
            "Certificates",
            "How long they are still valid, and CRLs for those of clients.",
            (
                ("gateway_certificate_valid_seconds", "{{instance}} {{listener}}"),
                ("gateway_client_crl_valid_seconds", "{{instance}} {{listener}} CRL"),
            ),
            "s",
        ),
        Panel(
            "Over their rate",
            "Of Pomelo: messages refused, clients kicked, handshakes refused.",
            (
                (
                    "sum by (listener) (rate(gateway_pomelo_messages_over_rate_total[$__rate_interval]))",
                    "{{listener}} messages",
                ),
                (
                    "sum by (listener) (rate(gateway_pomelo_kicks_over_rate_total[$__rate_interval]))",
                    "{{listener}} kicks",
                ),
                (
                    "sum by (listener) (rate(gateway_pomelo_sessions_over_rate_total[$__rate_interval]))",
                    "{{listener}} sessions",
                ),
            ),
            "ops",
        ),
        Panel(
            "Handshakes that were judged",
            "Of Pomelo, by options.authenticate; and those that it is being asked about.",
            (
                _rate("gateway_pomelo_authentications_total", "outcome"),
                ("sum(gateway_pomelo_authenticating)", "asked now"),
            ),
            "ops",
        ),
    ),
    "Is the process well?": (
        Panel(
            "Running since",
            "Of each gateway, with its version.",
            (
                (
                    "gateway_uptime_seconds + on (instance) group_left (version, node) (0 * gateway_build_info)",
                    "{{node}} {{version}}",
                ),
            ),
            "s",
            "stat",
        ),
        Panel(
            "Clock ahead",
            "By how much it has leapt, while nothing is removed for its age by that.",
            (
                ("gateway_clock_ahead_seconds", "{{instance}} gateway"),
                ("gateway_spark_clock_ahead_seconds", "{{instance}} job"),
            ),
            "s",
        ),
        Panel(
            "Starts",
            "Within the last half hour.",
            (("changes(process_start_time_seconds[30m])", _BY_INSTANCE),),
        ),
        Panel(
            "CPU",
            "Seconds a second; the event loop has one core.",
            (("rate(process_cpu_seconds_total[$__rate_interval])", _BY_INSTANCE),),
        ),
        Panel(
            "Memory",
            "Resident.",
            (("process_resident_memory_bytes", _BY_INSTANCE),),
            "bytes",
        ),
        Panel(
            "Event loop late",
            "How late a call came that it owed every second.",
            _quantiles("gateway_reactor_lag_seconds"),
            "s",
        ),
        Panel(
            "Reloads",
            "By outcome; keys that wait for a restart; 0: the last one found something wrong.",
            (
                (
                    "sum by (instance, outcome) (increase(gateway_config_reloads_total[$__rate_interval]))",
                    "{{instance}} {{outcome}}",
                ),
                (
                    "gateway_config_restart_keys",
                    "{{instance}} keys that want a restart",
                ),
                ("gateway_config_last_reload_successful", "{{instance}} last was good"),
            ),
        ),
        Panel(
            "Plug-ins that raise",
            "Calls of the daemon to a protocol's plug-in.",
            (
                (
                    "sum by (protocol) (increase(gateway_protocol_failures_total[$__rate_interval]))",
                    "{{protocol}}",
                ),
            ),
        ),
        Panel(
            "Who reads the events",
            "Live, and by replay; and what taps were too slow for, a second.",
            (
                ("gateway_feed_followers", "{{instance}} follow"),
                ("gateway_feed_replays", "{{instance}} replays"),
                (
                    "rate(gateway_feed_skipped_events_total[$__rate_interval])",
                    "{{instance}} skipped",
                ),
            ),
        ),
    ),
    "What do Pravega and Pomelo do?": (
        Panel(
            "Streams",
            "Segments, open transactions, and readers that wait at the end of one.",
            (
                ("gateway_pravega_segments", "{{instance}} segments"),
                ("gateway_pravega_transactions", "{{instance}} transactions"),
                ("gateway_pravega_waiting_reads", "{{instance}} waiting reads"),
            ),
        ),
        Panel(
            "Memory of streams",
            "Open transactions, newest data, reader groups and synchronizers.",
            (
                ("gateway_pravega_staged_bytes", "{{instance}} transactions"),
                ("gateway_pravega_recent_bytes", "{{instance}} newest"),
                ("gateway_pravega_internal_bytes", "{{instance}} groups"),
            ),
            "bytes",
        ),
        Panel(
            "Clients of pushes",
            "Connected; and groups, with their members.",
            (
                ("sum by (instance) (gateway_push_clients)", "{{instance}} clients"),
                (
                    "sum by (instance) (gateway_pomelo_group_members)",
                    "{{instance}} members",
                ),
                ("sum by (instance) (gateway_pomelo_groups)", "{{instance}} groups"),
            ),
        ),
        Panel(
            "Pushes",
            "By outcome.",
            (_rate("gateway_pushes_total", "outcome"),),
            "ops",
        ),
        Panel(
            "Outbox",
            "Rows and files by outcome, and names that are remembered.",
            (
                (
                    "sum by (outcome) (rate(gateway_outbox_rows_total[$__rate_interval]))",
                    "rows {{outcome}}",
                ),
                (
                    "sum by (outcome) (rate(gateway_outbox_files_total[$__rate_interval]))",
                    "files {{outcome}}",
                ),
                ("sum(gateway_outbox_remembered_files)", "names remembered"),
            ),
        ),
        Panel(
            "Backends",
            "Requests by outcome, and those without an answer yet.",
            (
                _rate("gateway_pomelo_backend_answers_total", "outcome"),
                ("sum(gateway_pomelo_backend_waiting)", "waiting"),
            ),
        ),
        Panel(
            "A backend's answer",
            "The mean, from when the request was stored.",
            (
                (
                    (
                        "sum(rate(gateway_pomelo_backend_seconds_total[$__rate_interval]))"
                        ' / sum(rate(gateway_pomelo_backend_answers_total{outcome="answered"}[$__rate_interval]))'
                    ),
                    "mean",
                ),
            ),
            "s",
        ),
        Panel(
            "Lobby",
            "Other gateways, and those that are away.",
            (
                ("gateway_pomelo_lobby_gateways", "{{instance}} others"),
                ("gateway_pomelo_lobby_gateways_away", "{{instance}} away"),
            ),
        ),
        Panel(
            "Calls in the lobby",
            "To others, and from them.",
            (
                _rate("gateway_pomelo_lobby_calls_total", "outcome"),
                (
                    "sum by (outcome) (rate(gateway_pomelo_lobby_taken_total[$__rate_interval]))",
                    "taken {{outcome}}",
                ),
            ),
            "ops",
        ),
    ),
}

LEFT_OUT = {
    "gateway_spark_expiry_failed": "an alert says it, and the log why",
    "gateway_audit_last_timestamp_seconds": "gateway_audit_age_seconds says the same",
    "gateway_audit_every_seconds": "a setting: spark.audit.every; a rule needs it",
    "gateway_journal_full": "gateway_held_back says the same, with the reason",
    "gateway_config_last_reload_success_timestamp_seconds": "a date of interest only "
    "after gateway_config_last_reload_successful fell to 0; /api/status has it",
}
"""Metrics that no panel has, and why."""
