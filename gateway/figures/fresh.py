"""Figures, panels and conditions of a question: is the table fresh?"""

from __future__ import annotations

from gateway.figures.kinds import FILE_SECONDS, Condition, Panel, Question
from gateway.sdk.figures import Figure

_SPARK = "docs/spark.md#when-something-is-wrong"
_BUCKET = "docs/operations.md#a-spool-in-a-bucket"

_FIGURES = (
    Figure("", "gateway_freshness_seconds{node}",
           "age of the oldest event that is in no table, stored or not; without a job (`spool.after: keep`) in no spool file",
           look="it rises: `sentence` in `/api/status` says why; the first number to look at",
           panel="Freshness of each node"),
    Figure("freshness.listeners", "gateway_listener_freshness_seconds{listener}",
           "age of a listener's oldest event that is in no table; not there while events of the last run, which may be anybody's, are in no table",
           look="one is above the others",
           panel="Freshness of each listener"),
    Figure("", "gateway_freshness_held{by}",
           "1 for what has to act next for the oldest event: `journal` (sync it, seal its segment), `spool` (write its file), `spark` (read that), `commit` (end its batch), `hub`; `sender`: no event waits in here"),
    Figure("freshness.unpublished_seconds", "gateway_unpublished_seconds",
           "age of the oldest durable event that is in no spool file",
           look="above `spool.roll_interval` for minutes: files are late, whatever the job does",
           card="oldest event not in a file", panel="Behind the tables",
           legend="in no file"),
    Figure("lake.lag_seconds", "", "age of the oldest event that is in no table",
           card="oldest event not in a table"),
    Figure("lake.lag_by_node", "gateway_lake_lag_seconds{node}",
           "age of a node's oldest event that is in no table, whatever holds it up",
           panel="Behind the tables", legend="node {{node}}"),
    Figure("spark.up", "gateway_spark_up",
           "1 while the Spark job reports that it runs, or starts; 30 s without a report beside the tables (`lake/.gateway/health.json`) are too long",
           card="running", panel="The job", legend="up"),
    Figure("spark.ready", "gateway_spark_ready",
           "1 while the job takes batches, 0 while it starts; shown by [the job itself](operations.md#a-spark-job-that-runs-elsewhere) (`spark.admin.listen`)",
           panel="The job", legend="ready"),
    Figure("spark.starting", "", "1 while the job starts"),
    Figure("spark.last_batch_at", "gateway_spark_last_batch_timestamp_seconds",
           "when the job committed its last batch, since the epoch",
           card="last batch", panel="Spark's batches", legend="ago"),
    Figure("spark.last_batch_seconds", "gateway_spark_last_batch_seconds",
           "how long the job's last batch took",
           look="it takes longer than `spark.trigger`",
           card="it took", panel="Spark's batches", legend="it took"),
    Figure("spark.rows", "gateway_spark_rows_total",
           "rows that the job has committed since its start",
           card="rows since its start", panel="Rows committed", legend="rows"),
    Figure("spark.misfits", "gateway_spark_misfits_total",
           "rows with a value that did not fit its column, since the job's start",
           look="it grows: look at `misfits` in `lake/events`",
           panel="Rows committed", legend="misfits"),
    Figure("spark.waiting_seconds", "gateway_spark_waiting_seconds",
           "age of the oldest file that is in no table, whichever gateway made it; the job shows it, and a gateway beside the job",
           card="oldest file not in a table", panel="Behind the tables", legend="job"),
    Figure("spark.waiting_files", "gateway_spark_waiting_files",
           "files that are in no table; shown by the job itself",
           panel="Files that wait", legend="before the job"),
    Figure("spark.failures", "gateway_spark_failures",
           "how often the job ended, unasked, since its last batch",
           look="2 and more", panel="The job", legend="failures"),
    Figure("lake.committed_lsn", "gateway_lake_committed_lsn{node}",
           "the newest event of this gateway that is in a table, as the job last said; of a job elsewhere that of each node, whichever of its incarnations gave it",
           card="newest lsn in a table", panel="Newest lsn in a table"),
    Figure("spool.published_lsn", "gateway_spool_published_lsn",
           "the newest event in a Parquet file; with a bucket, in an object",
           look="it stays far behind `gateway_journal_durable_lsn`"),
    Figure("spool.files", "gateway_spool_files",
           "files that wait for Spark; with a bucket, for their upload",
           look="it grows: the job is down or too slow",
           panel="Files that wait", legend="spool of {{instance}}"),
    Figure("", "gateway_spool_publish_seconds",
           "time to decode, write, fsync and rename one Parquet file",
           look="p99 above `spool.roll_interval`: the spool can not keep up",
           panel="Writing a spool file", buckets=FILE_SECONDS),
    Figure("bucket.uploads", "gateway_bucket_uploads_total{outcome}",
           "attempts to put a file into the bucket: `uploaded`, `failed`",
           look="`failed` grows, `uploaded` does not",
           card="attempts", panel="Uploads"),
    Figure("bucket.away", "gateway_bucket_away",
           "1 while the bucket takes no files; `spool.bucket_error` of `/api/status` says why",
           look="1 for minutes: `gateway_spool_bytes` grows towards `gateway_spool_limit_bytes`",
           card="takes no files", panel="Uploads", legend="bucket away"),
    Figure("bucket.stuck", "gateway_bucket_stuck_files",
           "files that can not be uploaded as they are: other bytes are there under that name, or they can not be read here",
           look="any: see the log",
           card="files that can not be uploaded", panel="Uploads", legend="stuck files"),
    Figure("", "gateway_bucket_upload_seconds", "time of one upload that went well",
           look="p99 above `spool.roll_interval`: raise `spool.s3.uploads`; with `ack: spool`, where files go one after the other, take a bucket that is nearer",
           panel="An upload", buckets=FILE_SECONDS),
    Figure("bucket.bytes", "gateway_bucket_bytes_total",
           "bytes of the files that were uploaded", card="uploaded", panel="Uploaded"),
    Figure("forward.connected", "gateway_forward_connected",
           "1 while the hub takes this gateway's files",
           card="connected", panel="The hub", legend="connected"),
    Figure("forward.away_seconds", "gateway_forward_away_seconds",
           "for how long the hub has been away; 0 while it is there",
           look="it nears the time that the spool lasts",
           card="away for", panel="The hub", legend="away for"),
    Figure("forward.refused", "gateway_forward_refused",
           "1 while the hub refuses this gateway", panel="The hub", legend="refused"),
    Figure("forward.place", "gateway_forward_hub_place",
           "which hub of `forward.to` is connected, or tried: 1 is the first",
           look="above 1 for long: the first is away, and another hub has the files",
           panel="The hub", legend="place of its hub"),
    Figure("forward.waiting_there", "gateway_forward_hub_waiting_files",
           "files that wait in the hub's spool, as it said last",
           look="hundreds: the hub's job is behind, and this gateway rolls less often",
           panel="The hub", legend="files wait there"),
    Figure("forward.connections", "gateway_forward_connections_total",
           "connections to the hub that were opened",
           look="it grows fast: the line breaks again and again",
           panel="The hub", legend="connections", rare=True),
    Figure("forward.files", "gateway_forward_files_total",
           "files that the hub has told to have",
           look="it stands while events come",
           card="files sent", panel="Files for the hub", legend="files"),
    Figure("forward.bytes", "gateway_forward_bytes_total",
           "bytes of the files that the hub has told to have",
           card="sent", panel="Files for the hub", legend="bytes"),
    Figure("forward.events", "gateway_forward_events_total",
           "events in the files that the hub has told to have",
           panel="Files for the hub", legend="events"),
    Figure("forward.set_aside", "gateway_forward_set_aside_files_total",
           "files that could not be read, and are in `poison/`",
           look="it grows: the disk fails; those events are at no hub",
           panel="Files for the hub", legend="set aside", rare=True),
    Figure("forward.arrived_lsn", "", "the hub has all of our events up to there"),
    Figure("forward.hub", "",
           "the same, by the node of the hub that was connected last"),
    Figure("forward.nodes", "",
           "lsns of other gateways that forward to this one, up to which the hub has all of their present incarnation"),
)  # fmt: skip

_PANELS = (
    Panel("Oldest event in no table",
          "How far the tables are behind what was acknowledged: the worst node.",
          [("max(gateway_freshness_seconds)", "")], "s", "stat", red_from=60),
    Panel("Spark job", "Whether it runs, or starts.", [("min(gateway_spark_up)", "")],
          kind="stat", red_below=1, words=("silent", "runs")),
    Panel("Gateways",
          "Whether every one takes events; of one that does not /readyz says why.",
          [("min(gateway_ready)", "")],
          kind="stat", red_below=1, words=("not ready", "take events")),
    Panel("Events made durable", "A second, of all listeners.",
          [("sum(rate(gateway_events_total[$__rate_interval]))", "")], "ops", "stat"),
    Panel("Until senders wait",
          "At the rate of the last minute; nothing while the spool does not grow.",
          [("min(gateway_spool_room_seconds)", "")], "s", "stat", red_below=1800),
    Panel("What is wrong",
          "Alerts of conf/alerts.yml that fire; docs/metrics.md has a row for each.",
          [('ALERTS{alertname=~"Gateway.*",alertstate="firing"}',
            "{{alertname}} {{instance}}")],
          kind="state-timeline"),
    Panel("Who has to act next", "For the oldest event; sender: none waits in here.",
          [("gateway_freshness_held == 1", "{{instance}} {{by}}")],
          kind="state-timeline"),
    Panel("Durable, in no file yet",
          "Events that wait for a spool file; with a bucket, for an object.",
          [("gateway_journal_durable_lsn - gateway_spool_published_lsn",
            "{{instance}}")]),
)  # fmt: skip

_CONDITIONS = (
    Condition("GatewaySparkDown", "page", "30s",
              """
              gateway_spark_up == 0
              unless on (instance) gateway_spark_failures >= 2
              unless on (instance) gateway_held_back{reason="spool"} == 1
              """,
              "The Spark job is silent; events wait and are in no table.",
              "start it with gateway spark",
              "Under systemd that is systemctl start gateway-spark; its log says why it ended.",
              _SPARK),
    # A job elsewhere is a target of its own, and dies with it.
    Condition("GatewaySparkGone", "page", "2m", 'up{job="gateway-spark"} == 0',
              "The Spark job does not answer; events wait and are in no table.",
              "look whether it runs (kubectl get pods, systemctl status gateway-spark)",
              "Its log says why it ended.", _SPARK),
    Condition("GatewaySparkFails", "page", "1m",
              """
              gateway_spark_failures >= 2
              unless on (instance) gateway_held_back{reason="spool"} == 1
              """,
              "The Spark job ends again and again before its first batch; events wait and are in no table.",
              "mend that, and it catches up by itself",
              "The first sentence (gateway status) and last_failure in the job's /api/status say why: a key of section spark, Java, memory, the disk of lake/.",
              _SPARK),
    Condition("GatewayFilesLate", "page", "5m",
              """
              gateway_freshness_seconds > 60
              and on (instance) gateway_freshness_held{by="spool"} == 1
              unless on (instance) gateway_journal_full == 1
              unless on (instance) gateway_bucket_away == 1
              """,
              "Spool files are late: events wait in the journal, where they are safe, and are in no table.",
              "look at that disk's room and permissions",
              "The first sentence and the log say what fails; if nothing does, the machine is too slow.",
              "docs/symptoms.md#the-first-sentence"),
    # One that is down, or a node that takes nothing, has its own alert.
    Condition("GatewayLakeLags", "morning", "5m",
              """
              (gateway_lake_lag_seconds > 60 or on (instance) gateway_spark_waiting_seconds > 60)
              unless on (instance) gateway_spark_up == 0
              unless on (instance) gateway_spark_failures >= 2
              unless on (instance) gateway_freshness_held{by="spool"} == 1
              unless on (instance) gateway_journal_full == 1
              """,
              "Events wait longer than a minute for their table, though the job runs.",
              "compare gateway_spark_last_batch_seconds with spark.trigger, and give the job more cores or memory",
              runbook=_SPARK),
    Condition("GatewayBucketAway", "page", "2m",
              "gateway_bucket_away == 1 unless on (instance) gateway_journal_full == 1",
              "The bucket takes no files; they wait in the spool until it is full.",
              "gateway doctor tries network, credentials and rights",
              "spool.bucket_error in /api/status has what the server said.", _BUCKET),
    Condition("GatewayBucketStuck", "morning", "10m",
              """
              gateway_bucket_stuck_files > 0
              unless on (instance) gateway_bucket_away == 1
              unless on (instance) gateway_journal_full == 1
              """,
              "A file can not be uploaded as it is, while others are; its events are in no table.",
              "read in the log which, and what the server says of it", runbook=_BUCKET),
    Condition("GatewayHubAway", "page", "15m",
              """
              gateway_forward_connected == 0
              unless on (instance) gateway_forward_refused == 1
              unless on (instance) gateway_journal_full == 1
              """,
              "The hub is away; events wait in this gateway's spool until it is full.",
              "look at the line, and at the hub",
              "Nothing is lost: they go over by themselves when it is back.",
              "docs/edge.md#when-the-hub-is-away"),
    Condition("GatewayOtherHub", "morning", "30m",
              """
              gateway_forward_hub_place > 1
              and on (instance) gateway_forward_connected == 1
              unless on (instance) gateway_journal_full == 1
              """,
              "The first hub is away or refuses, and another one has the files; the tables of the first lack them.",
              "look at the first hub of forward.to, and at the line there",
              "It is sent what it lacks once it is back, as far as spool.retention goes.",
              "docs/edge.md#several-hubs"),
    Condition("GatewayHubRefuses", "page", "2m",
              "gateway_forward_refused == 1 unless on (instance) gateway_journal_full == 1",
              "The hub refuses this gateway; its events wait in the spool until it is full.",
              "mend what the hub says: the token, the version, or that two gateways have one name",
              runbook="docs/edge.md#when-the-hub-refuses"),
)  # fmt: skip

FRESH = Question("Is the table fresh?", _FIGURES, _PANELS, _CONDITIONS)
