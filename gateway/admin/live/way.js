// The six places that an event passes, and where it stands.

import { ago, at, count, duration, made, many, none, put, size } from "./words.js";

const LEVELS = { good: "ok", warning: "look at it", bad: "something is wrong" };
const HOLDERS = { sender: "no event waits", journal: "journal", spool: "spool", spark: "Spark", commit: "its batch", hub: "the hub" };

let said = "";

/** The sentence on top.  Screen readers are told when it is another one, not each second. */
export function banner(level, sentence, runbook, link) {
  at("banner").dataset.level = level;
  put(at("level"), LEVELS[level]);
  put(at("sentence"), sentence);
  more(at("runbook"), runbook, link);
  const gist = level + sentence.replace(/[\d.,]+ ?\w+/g, "#");
  if (gist !== said) put(at("said"), sentence);
  said = gist;
}

// A link where the documentation has an address, and else its page and section as text.
function more(place, runbook, link) {
  const text = runbook ? `More: ${runbook}` : "";
  if (place.textContent === text) return;
  put(place, text);
  if (!text || !link) return;
  const to = made("a", runbook);
  Object.assign(to, { href: link, target: "_blank", rel: "noopener" });
  place.replaceChildren("More: ", to);
}

function tell(place, values) {
  for (const [name, text] of Object.entries(values)) put(place.querySelector(`[data-of=${name}]`), text);
}

function state({ up, starting, failures, last_batch_at, rows }) {
  if (up) return starting ? "starts" : "runs";
  if (failures) return `failed, ${many(failures, "time")}`;
  return last_batch_at === null && !rows ? "never seen" : "silent";
}

function spark({ spark, freshness }, goal) {
  if (goal === "spool") return { spark: "none", "spark-unit": "spool.after: keep", took: none, last: none };
  if (goal === "hub") return { spark: "none", "spark-unit": "spool.after: forward", took: none, last: none };
  return {
    spark: state(spark),
    "spark-unit": freshness?.held_by === "commit" ? "a batch is under way" : "job",
    took: duration(spark.last_batch_seconds),
    last: spark.last_batch_at === null ? none : ago(Date.now() / 1000 - spark.last_batch_at),
  };
}

/** `sample` is the last five seconds; `unacknowledged` is null where nobody looked. */
export function way(status, sample, unacknowledged) {
  const { journal, spool, listeners, freshness } = status;
  const sum = of => listeners.reduce((total, one) => total + of(one), 0);
  const goal = freshness?.goal ?? "table";
  tell(at("at-senders"), {
    connections: count(sum(one => one.connections)),
    rejected: count(sum(one => Object.values(one.rejected).reduce((a, b) => a + b, 0))),
  });
  tell(at("at-listeners"), {
    events: sample ? count(sample.events) : none,
    bytes: sample ? size(sample.bytes) + "/s" : none,
    unacknowledged: size(unacknowledged),
  });
  tell(at("at-journal"), {
    ack99: duration(sample?.ack_p99), ack50: duration(sample?.ack_p50), journal: size(journal.bytes),
    unpublished: count(Math.max(0, journal.durable_lsn - spool.published_lsn)),
  });
  const waiting = freshness?.waiting_bytes ?? spool.bytes;
  tell(at("at-spool"), {
    waiting: size(waiting), files: count(spool.files), limit: size(spool.limit_bytes),
    room: freshness?.room_seconds === null || !freshness ? "not filling" : duration(freshness.room_seconds),
  });
  at("fill").value = spool.limit_bytes ? Math.min(1, waiting / spool.limit_bytes) : 0;
  tell(at("at-spark"), spark(status, goal));
  tell(at("at-tables"), {
    goal: { spool: "Spool files", hub: "The hub" }[goal] ?? "Tables",
    age: freshness?.age_seconds ? duration(freshness.age_seconds) : "none",
    newest: freshness?.newest_seconds === null || !freshness ? none : duration(freshness.newest_seconds) + " old",
    held: HOLDERS[freshness?.held_by] ?? none,
  });
  stands(freshness?.stands, freshness?.level);
}

/** Marks one place; nothing is marked while all goes on. */
export function stands(place, level) {
  for (const element of document.querySelectorAll(".way li"))
    element.className = element.id === "at-" + place ? level : "";
}
