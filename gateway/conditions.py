"""The table of conditions: what can be wrong with a gateway, how that is measured, who is
told of it and after how long, and what to do.

From it come conf/alerts.yml, the rules in deploy/prometheus-operator, the alerts on
conf/dashboard.json and the list in docs/operations.md (`python deploy/monitoring.py`), and
the advice of the first sentence (`gateway.admin.freshness`).

One target, `gateway`, tells of a job on its own machine; a job elsewhere is a target of its
own, `gateway-spark` (`spark.admin.listen`).  Both show the same names, so that one rule is
right for both.  What another condition explains is left to that one: each fault has one
alert.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Question = Literal[
    "Is the table fresh?",
    "Are senders acknowledged?",
    "Is room left?",
    "Is all there, once?",
    "Who is turned away?",
    "Is the process well?",
]
Severity = Literal["page", "morning"]
"""`page`: wake somebody, events are not taken or do not arrive; `morning`: look tomorrow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """Something that is wrong."""

    name: str
    """Of the alert."""
    question: Question
    """That it answers with no."""
    severity: Severity
    after: str = ""
    """For so long it has to last; empty: none."""
    expr: str
    """In PromQL: there is a series while it is so."""
    summary: str
    """What is wrong, in a sentence."""
    advice: str
    """What to do: a clause, that may stand in a sentence."""
    more: str = ""
    """What else there is to know, in sentences."""
    runbook: str
    """The page of the documentation that has more, and its section."""

    @property
    def action(self) -> str:
        """The advice, as sentences."""
        text = f"{self.advice[0].upper()}{self.advice[1:]}."
        return f"{text} {self.more}" if self.more else text


_FULL = 'unless on (instance) gateway_held_back{reason="disk"} == 1'
_SPARK = "docs/spark.md#when-something-is-wrong"
_RED = "docs/symptoms.md#when-readyz-is-red"
_LOST = "docs/symptoms.md#when-acknowledged-events-are-lost"
_HANG = "docs/symptoms.md#when-writers-hang-or-are-sent-away"
_AUDIT = "docs/operations.md#an-audit-that-runs-by-itself"

CONDITIONS: tuple[Condition, ...] = (
    Condition(
        name="GatewaySparkDown",
        question="Is the table fresh?",
        severity="page",
        after="30s",
        expr="""
            gateway_spark_up == 0
            unless on (instance) gateway_spark_failures >= 2
            unless on (instance) gateway_held_back{reason="spool"} == 1
        """,
        summary="The Spark job is silent; events wait and are in no table.",
        advice="start it with gateway spark",
        more="Under systemd that is systemctl start gateway-spark; its log says why it ended.",
        runbook=_SPARK,
    ),
    # A job elsewhere is a target of its own, and dies with it.
    Condition(
        name="GatewaySparkGone",
        question="Is the table fresh?",
        severity="page",
        after="2m",
        expr='up{job="gateway-spark"} == 0',
        summary="The Spark job does not answer; events wait and are in no table.",
        advice="look whether it runs (kubectl get pods, systemctl status gateway-spark)",
        more="Its log says why it ended.",
        runbook=_SPARK,
    ),
    Condition(
        name="GatewaySparkFails",
        question="Is the table fresh?",
        severity="page",
        after="1m",
        expr="""
            gateway_spark_failures >= 2
            unless on (instance) gateway_held_back{reason="spool"} == 1
        """,
        summary="The Spark job ends again and again before its first batch; events wait and are in no table.",
        advice="mend that, and it catches up by itself",
        more="The first sentence (gateway status) and last_failure in the job's /api/status say why: a key of section spark, Java, memory, the disk of lake/.",
        runbook=_SPARK,
    ),
    Condition(
        name="GatewayFilesLate",
        question="Is the table fresh?",
        severity="page",
        after="5m",
        expr="""
            gateway_freshness_seconds > 60
            and on (instance) gateway_freshness_held{by="spool"} == 1
            unless on (instance) gateway_journal_full == 1
            unless on (instance) gateway_bucket_away == 1
        """,
        summary="Spool files are late: events wait in the journal, where they are safe, and are in no table.",
        advice="look at that disk's room and permissions",
        more="The first sentence and the log say what fails; if nothing does, the machine is too slow.",
        runbook="docs/symptoms.md#the-first-sentence",
    ),
    # One that is down, or a node that takes nothing, has its own alert.
    Condition(
        name="GatewayLakeLags",
        question="Is the table fresh?",
        severity="morning",
        after="5m",
        expr="""
            (gateway_lake_lag_seconds > 60 or on (instance) gateway_spark_waiting_seconds > 60)
            unless on (instance) gateway_spark_up == 0
            unless on (instance) gateway_spark_failures >= 2
            unless on (instance) gateway_freshness_held{by="spool"} == 1
            unless on (instance) gateway_journal_full == 1
        """,
        summary="Events wait longer than a minute for their table, though the job runs.",
        advice="compare gateway_spark_last_batch_seconds with spark.trigger, and give the job more cores or memory",
        runbook=_SPARK,
    ),
    Condition(
        name="GatewayBucketAway",
        question="Is the table fresh?",
        severity="page",
        after="2m",
        expr="gateway_bucket_away == 1 unless on (instance) gateway_journal_full == 1",
        summary="The bucket takes no files; they wait in the spool until it is full.",
        advice="gateway doctor tries network, credentials and rights",
        more="spool.bucket_error in /api/status has what the server said.",
        runbook="docs/operations.md#a-spool-in-a-bucket",
    ),
    Condition(
        name="GatewayBucketStuck",
        question="Is the table fresh?",
        severity="morning",
        after="10m",
        expr="""
            gateway_bucket_stuck_files > 0
            unless on (instance) gateway_bucket_away == 1
            unless on (instance) gateway_journal_full == 1
        """,
        summary="A file can not be uploaded as it is, while others are; its events are in no table.",
        advice="read in the log which, and what the server says of it",
        runbook="docs/operations.md#a-spool-in-a-bucket",
    ),
    Condition(
        name="GatewayHubAway",
        question="Is the table fresh?",
        severity="page",
        after="15m",
        expr="""
            gateway_forward_connected == 0
            unless on (instance) gateway_forward_refused == 1
            unless on (instance) gateway_journal_full == 1
        """,
        summary="The hub is away; events wait in this gateway's spool until it is full.",
        advice="look at the line, and at the hub",
        more="Nothing is lost: they go over by themselves when it is back.",
        runbook="docs/edge.md#when-the-hub-is-away",
    ),
    Condition(
        name="GatewayOtherHub",
        question="Is the table fresh?",
        severity="morning",
        after="30m",
        expr="""
            gateway_forward_hub_place > 1
            and on (instance) gateway_forward_connected == 1
            unless on (instance) gateway_journal_full == 1
        """,
        summary="The first hub is away or refuses, and another one has the files; the tables of the first lack them.",
        advice="look at the first hub of forward.to, and at the line there",
        more="It is sent what it lacks once it is back, as far as spool.retention goes.",
        runbook="docs/edge.md#several-hubs",
    ),
    Condition(
        name="GatewayHubRefuses",
        question="Is the table fresh?",
        severity="page",
        after="2m",
        expr="gateway_forward_refused == 1 unless on (instance) gateway_journal_full == 1",
        summary="The hub refuses this gateway; its events wait in the spool until it is full.",
        advice="mend what the hub says: the token, the version, or that two gateways have one name",
        runbook="docs/edge.md#when-the-hub-refuses",
    ),
    Condition(
        name="GatewayDown",
        question="Are senders acknowledged?",
        severity="page",
        after="2m",
        expr='up{job="gateway"} == 0',
        summary="The gateway does not answer; senders keep their events, up to their own limits.",
        advice="look whether the process runs (systemctl status gateway, kubectl get pods)",
        more="Its log says why it ended or does not start.",
        runbook=_RED,
    ),
    Condition(
        name="GatewayNotReady",
        question="Are senders acknowledged?",
        severity="page",
        after="5m",
        expr="gateway_ready == 0 unless on (instance) gateway_journal_full == 1",
        summary="The gateway runs and takes no events, because it starts, stops, or waits for something.",
        advice="ask it why with curl localhost:8080/readyz",
        runbook=_RED,
    ),
    # While the disk hangs batches wait, in time or in memory; where something else
    # holds senders back they wait for that.
    Condition(
        name="GatewayDiskHangs",
        question="Are senders acknowledged?",
        severity="page",
        after="30s",
        expr="""
            gateway_journal_oldest_wait_seconds > 5
            and on (instance) gateway_held_back{reason=~"stall|memory"} == 1
        """,
        summary="The disk of data_dir does not answer; nothing is acknowledged until it does.",
        advice="dmesg says more about the disk",
        more="Look at it, its controller and the hypervisor (iostat).",
        runbook=_RED,
    ),
    Condition(
        name="GatewayHoldsBack",
        question="Are senders acknowledged?",
        severity="morning",
        after="5m",
        expr="""
            max by (instance, reason) (gateway_held_back{reason=~"memory|commit"}) == 1
            unless on (instance) gateway_journal_oldest_wait_seconds > 5
        """,
        summary="Senders are held back for minutes, because the disk is slower than they are, or commits fail.",
        advice="compare gateway_journal_commit_seconds with what the disk should do",
        more="The log has failures.",
        runbook=_RED,
    ),
    Condition(
        name="GatewaySlowAcks",
        question="Are senders acknowledged?",
        severity="morning",
        after="10m",
        expr="""
            histogram_quantile(0.99, sum by (le, instance) (rate(gateway_ack_seconds_bucket[5m]))) > 0.5
            unless on (instance) gateway_journal_full == 1
        """,
        summary="One acknowledgement in a hundred takes more than half a second.",
        advice="look at gateway_journal_commit_seconds; if it is as slow, it is the disk",
        runbook=_HANG,
    ),
    Condition(
        name="GatewayDiskFull",
        question="Is room left?",
        severity="page",
        after="1m",
        expr='gateway_held_back{reason="disk"} == 1',
        summary="The disk of data_dir is full; senders wait, nothing is lost.",
        advice="make room elsewhere on that disk, and delete nothing in journal/, spool/ or state/",
        more="It goes on by itself.",
        runbook=_RED,
    ),
    Condition(
        name="GatewayDiskFillsSoon",
        question="Is room left?",
        severity="page",
        after="10m",
        expr=f"""
            predict_linear(gateway_disk_room_bytes[30m], 3600) < 0
            {_FULL}
        """,
        summary="The disk of data_dir is full within the hour, as it fills now; then senders wait.",
        advice="see what grows: journal, spool, retained/, or something else on that disk",
        more="What the archive holds goes by itself before, not with spool.after keep.",
        runbook=_RED,
    ),
    Condition(
        name="GatewayDiskFills",
        question="Is room left?",
        severity="morning",
        after="1h",
        expr=f"""
            predict_linear(gateway_disk_room_bytes[6h], 86400) < 0
            unless on (instance) predict_linear(gateway_disk_room_bytes[30m], 3600) < 0
            {_FULL}
        """,
        summary="The disk of data_dir is full within a day, as it has filled for hours.",
        advice="see what grows: journal, spool, retained/, or something else on that disk",
        more="What the archive holds goes by itself before, not with spool.after keep.",
        runbook=_RED,
    ),
    Condition(
        name="GatewaySpoolFull",
        question="Is room left?",
        severity="page",
        after="1m",
        expr='gateway_held_back{reason="spool"} == 1',
        summary="The spool is full, because the Spark job, the bucket or the hub is down or too slow; senders wait, nothing is lost.",
        advice="mend or start the job, or reach the bucket or the hub",
        more="To gain time raise spool.max_bytes, if the disk has room.",
        runbook=_RED,
    ),
    Condition(
        name="GatewaySpoolFills",
        question="Is room left?",
        severity="morning",
        after="10m",
        expr="""
            gateway_spool_bytes / gateway_spool_limit_bytes > 0.5
            and deriv(gateway_spool_bytes[30m]) > 0
            unless on (instance) gateway_held_back{reason="spool"} == 1
            unless on (instance) gateway_spark_up == 0
            unless on (instance) gateway_bucket_away == 1
            unless on (instance) gateway_forward_connected == 0
        """,
        summary="The spool is half full and grows, as the job, the bucket or the hub does not keep up; senders wait once it is full.",
        advice="give the job more cores or memory, or raise spark.max_bytes_per_trigger",
        more="Where files go to a bucket or a hub, look at the line there, spool.s3.uploads and forward.rate.",
        runbook="docs/spark.md#settings",
    ),
    Condition(
        name="GatewayRetainedGrows",
        question="Is room left?",
        severity="morning",
        after="30m",
        expr="""
            gateway_pravega_retained_bytes > 0.8 * gateway_pravega_retained_limit_bytes
            or (gateway_retained_bytes > gateway_disk_room_bytes and deriv(gateway_retained_bytes[6h]) > 0)
        """,
        summary="Streams keep nearly as much as they may, or more than the disk has room for; then appends are refused.",
        advice="give streams a retention policy, or raise options.retained_bytes",
        more="gateway_pravega_stream_retained_bytes says which have most.",
        runbook="docs/pravega.md#retention",
    ),
    Condition(
        name="GatewayConsumerBehind",
        question="Is room left?",
        severity="morning",
        after="10m",
        expr="gateway_consumer_held_files > 0",
        summary="One of spool.consumers has not read files whose spool.retention is over; they stay for it and take room.",
        advice="start that consumer, or take its name out of spool.consumers",
        runbook="docs/consumers.md#how-long-files-stay",
    ),
    Condition(
        name="GatewayConnectionsNearLimit",
        question="Is room left?",
        severity="morning",
        after="5m",
        expr="""
            sum by (instance, listener) (gateway_connections)
            > 0.9 * sum by (instance, listener) (gateway_connections_limit)
            or process_open_fds{job="gateway"} > 0.9 * process_max_fds{job="gateway"}
        """,
        summary="A listener has nine in ten of the connections that it may have; who comes when there are no more is sent away.",
        advice="raise limits.connections, and LimitNOFILE= above their sum",
        more="Or end what holds connections without need: /api/connections says who.",
        runbook=_HANG,
    ),
    Condition(
        name="GatewayStateNotSaved",
        question="Is room left?",
        severity="morning",
        after="10m",
        expr='increase(gateway_state_saves_total{outcome="failed"}[10m]) > 2',
        summary="What protocols remember can not be saved; the journal keeps growing meanwhile.",
        advice="read in the log why: mostly permissions or room in state/",
        runbook="docs/operations.md#state-and-checkpoints",
    ),
    Condition(
        name="GatewayMissing",
        question="Is all there, once?",
        severity="page",
        expr="gateway_audit_missing_events > 0 or gateway_audit_unknown_ends > 0",
        summary="The audit found acknowledged events that are nowhere, or the end of a lost disk that nobody knows.",
        advice="gateway audit says which, and what is known of them",
        more="Get back what can come back; gateway audit accept says that nothing more will, and gateway audit --note that it was looked again.",
        runbook="docs/operations.md#what-was-lost-for-good",
    ),
    Condition(
        name="GatewayAuditDoubts",
        question="Is all there, once?",
        severity="morning",
        expr="""
            gateway_audit_complete == 0
            unless on (instance) gateway_audit_missing_events > 0
            unless on (instance) gateway_audit_unknown_ends > 0
        """,
        summary="The audit found events that are there twice, or files that it can not read.",
        advice="gateway audit says which",
        runbook="docs/symptoms.md#when-a-file-is-damaged-gone-or-doubled",
    ),
    Condition(
        name="GatewayConsumerMissed",
        question="Is all there, once?",
        severity="page",
        expr="increase(gateway_consumer_missed_files_total[1h]) > 0",
        summary="Files left the archive for want of room before one of spool.consumers had read them.",
        advice="start that consumer, and raise spool.archive_bytes or give the disk room",
        more="Where gateway spark runs, the tables have what is in them; without it they are gone.",
        runbook="docs/consumers.md#how-long-files-stay",
    ),
    Condition(
        name="GatewayAuditLate",
        question="Is all there, once?",
        severity="morning",
        after="10m",
        expr="gateway_audit_age_seconds > 2 * gateway_audit_every_seconds",
        summary="No audit has come to its end for twice as long as it should; nobody knows whether all is there.",
        advice="see what the job's log says of it, and raise the limits in spark.audit if it is that",
        runbook=_AUDIT,
    ),
    Condition(
        name="GatewayDiskFails",
        question="Is all there, once?",
        severity="page",
        expr="""
            increase(gateway_journal_failures_total[10m]) > 0
            or increase(gateway_journal_corrupt_records_total[10m]) > 0
        """,
        summary="The disk under the journal fails or lies; nothing that it refused was acknowledged.",
        advice="read the log for the file and the error, run gateway audit, and plan for another disk",
        runbook=_LOST,
    ),
    Condition(
        name="GatewaySparkMovedFiles",
        question="Is all there, once?",
        severity="morning",
        expr="gateway_spark_holes > 0",
        summary="The job could not read a spool file and moved it to poison/; its events are in no table.",
        advice="the reason lies beside each in poison/",
        more="Mend the file, and run gateway spark requeue.",
        runbook=_SPARK,
    ),
    Condition(
        name="GatewayNotExpired",
        question="Is all there, once?",
        severity="morning",
        after="1h",
        expr="gateway_spark_expiry_failed == 1",
        summary="Days that are older than spark.retention can not be removed from the tables; more is kept than should be.",
        advice="the job's log says why (could not remove what has expired)",
        more="It is tried again after ten minutes.",
        runbook="docs/privacy.md#days-that-are-too-old",
    ),
    Condition(
        name="GatewayDeletionUnfinished",
        question="Is all there, once?",
        severity="morning",
        after="1d",
        expr="gateway_lake_deletions_unfinished > 0",
        summary="A deletion is not finished after a day; some of its events are left in a file.",
        advice="run gateway spark delete, which goes on with it and says what is left",
        runbook="docs/privacy.md#deleting-rows",
    ),
    Condition(
        name="GatewayFlawedEvents",
        question="Is all there, once?",
        severity="morning",
        after="1h",
        expr="sum by (instance, flaw) (rate(gateway_flawed_events_total[30m])) > 0",
        summary="Some sender writes broken events; they are acknowledged, and in lake/quarantine.",
        advice="column flaw of their rows says why, listener and peer who sends them",
        more="gateway spark requeue puts them through again.",
        runbook=_SPARK,
    ),
    Condition(
        name="GatewayCertificateEnded",
        question="Who is turned away?",
        severity="page",
        after="5m",
        expr="gateway_certificate_valid_seconds < 86400",
        summary="A certificate, of a listener or of forward, ends within a day, or has ended; the other side refuses it then.",
        advice="put a new one in its place, it is read by itself",
        runbook="docs/operations.md#before-the-first-start-and-when-something-is-odd",
    ),
    Condition(
        name="GatewayCertificateEnds",
        question="Who is turned away?",
        severity="morning",
        after="1h",
        expr="gateway_certificate_valid_seconds < 14 * 86400 and gateway_certificate_valid_seconds >= 86400",
        summary="A certificate, of a listener or of forward, ends within two weeks.",
        advice="put a new one in its place, it is read by itself",
        runbook="docs/operations.md#before-the-first-start-and-when-something-is-odd",
    ),
    Condition(
        name="GatewayCrlEnded",
        question="Who is turned away?",
        severity="page",
        after="5m",
        expr='gateway_client_crl_valid_seconds{expired="refuse"} < 4 * 3600',
        summary="The CRL that a listener looks client certificates up in ends within four hours, or has ended; clients with certificates are refused then.",
        advice="put its authority's new one in its place, it is read by itself",
        runbook="docs/security.md#revoked-certificates",
    ),
    Condition(
        name="GatewayCrlEnds",
        question="Who is turned away?",
        severity="morning",
        after="1h",
        expr='gateway_client_crl_valid_seconds < 7 * 86400 unless gateway_client_crl_valid_seconds{expired="refuse"} < 4 * 3600',
        summary="The CRL that a listener looks client certificates up in ends within a week; or has ended, with tls.client_crl_expired: accept.",
        advice="put its authority's new one in its place, it is read by itself",
        runbook="docs/security.md#revoked-certificates",
    ),
    Condition(
        name="GatewayTurnsAway",
        question="Who is turned away?",
        severity="morning",
        after="30m",
        expr="sum by (instance, reason) (rate(gateway_rejected_connections_total[10m])) > 0.1",
        summary="Connections are rejected, one in ten seconds or more.",
        advice="the label says the reason, the log names the peers",
        runbook=_HANG,
    ),
    Condition(
        name="GatewayGuessing",
        question="Who is turned away?",
        severity="morning",
        after="10m",
        expr="rate(gateway_wrong_credentials_total[10m]) > 0.1",
        summary="Somebody tries tokens or passwords.",
        advice="the log has the address; close the port to it",
        runbook="docs/security.md#who-may-connect-who-may-look",
    ),
    Condition(
        name="GatewayClockAhead",
        question="Is the process well?",
        severity="morning",
        after="10m",
        expr="gateway_clock_ahead_seconds > 0 or gateway_spark_clock_ahead_seconds > 0",
        summary="A clock has leapt by more than three days; for a day nothing is removed for its age by what it shows.",
        advice="compare it with another one, and set it if it is ahead (chrony, systemd-timesyncd)",
        more="There is a day for that: then days of the tables, files of the archive and events of streams are removed by what it shows, for good. Restart the gateway once it is set. If gateway or job was off for so long, there is nothing to do.",
        runbook="docs/symptoms.md#when-a-clock-is-wrong",
    ),
    Condition(
        name="GatewayRestarts",
        question="Is the process well?",
        severity="page",
        expr='changes(process_start_time_seconds{job=~"gateway|gateway-spark"}[30m]) >= 3',
        summary="The gateway, or the job, has started three times within half an hour; each time senders or tables wait.",
        advice="read in its log, and in dmesg, what ends it",
        more="Mostly it is memory, or an error that the start says.",
        runbook=_RED,
    ),
    Condition(
        name="GatewayEventLoopBusy",
        question="Is the process well?",
        severity="morning",
        after="10m",
        expr="rate(gateway_reactor_lag_seconds_sum[5m]) / rate(gateway_reactor_lag_seconds_count[5m]) > 0.25",
        summary="The event loop is late all the time; one core is not enough for what is sent.",
        advice="spread the senders over another gateway, with a data_dir and a node name of its own",
        runbook="docs/sizing.md#more-than-one-gateway",
    ),
    Condition(
        name="GatewayReloadFailed",
        question="Is the process well?",
        severity="morning",
        after="5m",
        expr="gateway_config_last_reload_successful == 0",
        summary="The last reload found something wrong; the configuration before it is in force.",
        advice="mend that, and run gateway reload",
        more="reload.problems in /api/status says what.",
        runbook="docs/reload.md#reload",
    ),
)

_BY_NAME = {one.name: one for one in CONDITIONS}


def advice(name: str) -> str:
    """What to do about the condition of that name, as a clause."""
    return _BY_NAME[name].advice


def runbook(name: str) -> str:
    """Where the documentation has more of it."""
    return _BY_NAME[name].runbook
