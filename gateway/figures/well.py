"""Figures, panels and conditions of a question: is the process well?"""

from __future__ import annotations

from gateway.figures.kinds import LAG_SECONDS, Condition, Panel, Question
from gateway.sdk.figures import Figure

_CLOCK = "[more](symptoms.md#when-a-clock-is-wrong)"

_FIGURES = (
    Figure("uptime_seconds", "gateway_uptime_seconds", "time since the process started",
           look="it keeps falling to 0: a restart loop"),
    Figure("", "gateway_build_info{version,node,python}", "always 1; what is running",
           look="versions differ between machines"),
    Figure("disk.clock_ahead_seconds", "gateway_clock_ahead_seconds",
           "how far the clock has leapt since it was last looked at; while it is above 0 (a day at most) the archive does not go by it",
           look=f"above 0: {_CLOCK}", panel="Clock ahead", legend="gateway"),
    Figure("spark.clock_ahead_seconds", "gateway_spark_clock_ahead_seconds",
           "how far the clock of the job's machine has leapt; while it is above 0 (a day at most) no day expires by it",
           look=f"above 0: {_CLOCK}", panel="Clock ahead", legend="job"),
    Figure("", "gateway_reactor_lag_seconds",
           "how late a call came that the event loop owed every second",
           panel="Event loop late", buckets=LAG_SECONDS),
    Figure("config.successful", "gateway_config_last_reload_successful",
           "1 if the last reload found nothing wrong; the start counts as one",
           look="0: the log and `reload.problems` in `/api/status` say what; mend the file and `gateway reload`",
           panel="Reloads", legend="last was good"),
    Figure("config.succeeded_at", "gateway_config_last_reload_success_timestamp_seconds",
           "when a reload last found nothing wrong, since the epoch", card="read",
           unseen="a date of interest only after gateway_config_last_reload_successful fell to 0; /api/status has it"),
    Figure("config.restart", "gateway_config_restart_keys",
           "changed keys that are not in force before a restart; `reload.restart` in `/api/status` names them",
           look="it is not 0 after a change that was to be complete",
           card="keys that wait for a restart",
           panel="Reloads", legend="keys that want a restart"),
    Figure("config.reloads", "gateway_config_reloads_total{outcome}",
           "reloads of the configuration, `applied` or `refused`",
           look="`refused` grows: somebody reloads a broken file again and again",
           panel="Reloads", legend="{{outcome}}", rare=True),
    Figure("", "gateway_protocol_failures_total{protocol}",
           "calls of the daemon to a protocol's plug-in that raised",
           look="it grows: the log has the first traceback of each kind; report it to the plug-in's author",
           panel="Plug-ins that raise", rare=True),
    Figure("feeds.followers", "gateway_feed_followers",
           "readers that follow the events live: taps, `/api/tap`, replays that have caught up",
           panel="Who reads the events", legend="follow"),
    Figure("feeds.replays", "gateway_feed_replays",
           "subscriptions to `events`; at most 64, and 16 of one client",
           look="it nears 64", panel="Who reads the events", legend="replays"),
    Figure("feeds.skipped", "gateway_feed_skipped_events_total",
           "lsns that a tap was too slow for, counted for each tap; with a filter also those among them that it would not have taken, as nobody has looked",
           look="it grows: that reader wants `events`, or a filter",
           panel="Who reads the events", legend="skipped"),
)  # fmt: skip

_PANELS = (
    Panel("Running since", "Of each gateway, with its version.",
          [("gateway_uptime_seconds + on (instance) group_left (version, node) (0 * gateway_build_info)",
            "{{node}} {{version}}")], "s", "stat"),
    Panel("Starts", "Within the last half hour.",
          [("changes(process_start_time_seconds[30m])", "{{instance}}")]),
    Panel("CPU", "Seconds a second; the event loop has one core.",
          [("rate(process_cpu_seconds_total[$__rate_interval])", "{{instance}}")]),
    Panel("Memory", "Resident.",
          [("process_resident_memory_bytes", "{{instance}}")], "bytes"),
)  # fmt: skip

_CONDITIONS = (
    Condition("GatewayClockAhead", "morning", "10m",
              "gateway_clock_ahead_seconds > 0 or gateway_spark_clock_ahead_seconds > 0",
              "A clock has leapt by more than three days; for a day nothing is removed for its age by what it shows.",
              "compare it with another one, and set it if it is ahead (chrony, systemd-timesyncd)",
              "There is a day for that: then days of the tables, files of the archive and events of streams are removed by what it shows, for good. Restart the gateway once it is set. If gateway or job was off for so long, there is nothing to do.",
              "docs/symptoms.md#when-a-clock-is-wrong"),
    Condition("GatewayRestarts", "page", "",
              'changes(process_start_time_seconds{job=~"gateway|gateway-spark"}[30m]) >= 3',
              "The gateway, or the job, has started three times within half an hour; each time senders or tables wait.",
              "read in its log, and in dmesg, what ends it",
              "Mostly it is memory, or an error that the start says.",
              "docs/symptoms.md#when-readyz-is-red"),
    Condition("GatewayEventLoopBusy", "morning", "10m",
              "rate(gateway_reactor_lag_seconds_sum[5m]) / rate(gateway_reactor_lag_seconds_count[5m]) > 0.25",
              "The event loop is late all the time; one core is not enough for what is sent.",
              "spread the senders over another gateway, with a data_dir and a node name of its own",
              runbook="docs/sizing.md#more-than-one-gateway"),
    Condition("GatewayReloadFailed", "morning", "5m",
              "gateway_config_last_reload_successful == 0",
              "The last reload found something wrong; the configuration before it is in force.",
              "mend that, and run gateway reload",
              "reload.problems in /api/status says what.", "docs/reload.md#reload"),
)  # fmt: skip

WELL = Question("Is the process well?", _FIGURES, _PANELS, _CONDITIONS)
