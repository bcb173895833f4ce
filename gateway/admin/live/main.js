// The live page: listens to the daemon's feed and gives each part what it shows.

import { ago, at, count, duration, made, many, put, size } from "./words.js";
import { Gateways } from "./gateways.js";
import { Hour } from "./plots.js";
import { Peers } from "./peers.js";
import { Table } from "./tables.js";
import { Tap } from "./tap.js";
import { banner, stands, way } from "./way.js";

const SILENT = 7000, AGAIN = 3000;

const gateways = new Gateways();
const hour = new Hour(at("plots")), peers = new Peers(), tap = new Tap();
const batches = new Table(at("batches"), [
  { key: "at", name: "ended", kind: "text", show: one => new Date(one.at * 1000).toLocaleTimeString() },
  { key: "seconds", name: "took", show: one => duration(one.seconds) },
  { key: "rows", name: "rows", show: one => count(one.rows) },
  { key: "files", name: "files", show: one => count(one.files) },
  { key: "rate", name: "rows/s", show: one => count(one.rows / Math.max(.001, one.seconds)) },
], { caption: "Spark's batches", sort: "at", empty: "no batch yet" });

let heard = 0, feed = null;

function show({ status, sample }) {
  heard = Date.now();
  document.body.classList.remove("stale");
  document.title = (status.freshness?.level === "good" ? "" : "● ") + status.node + " · gateway";
  put(at("node"), status.node);
  put(at("about"), `gateway ${status.version} · up ${duration(status.uptime_seconds)}`);
  banner(status.freshness?.level ?? (status.ready ? "good" : "bad"), status.sentence ?? status.not_ready_reason ?? "It takes events.", status.freshness?.runbook, status.freshness?.runbook_link);
  gateways.heard(status);
  peers.show(status);
  way(status, sample, peers.unacknowledged);
  hour.add(sample);
  batches.show(status.batches);
  const last = status.batches.at(-1);
  at("paths").hidden = !status.paths.length;
  put(at("paths"), `In many events, and in no column: ${status.paths.join(", ")}. See gateway spark columns --suggest.`);
  put(at("batches-about"), last ? `the last ${ago(Date.now() / 1000 - last.at)}, ${many(last.rows, "row")} in ${duration(last.seconds)}` : "none yet");
  tap.show(status);
  cards(status.cards);
  put(at("seen"), "updated " + new Date().toLocaleTimeString());
}

function written(value, unit) {
  if (value === null) return "not since the start";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (unit === "bytes") return size(value);
  if (unit === "seconds") return duration(value);
  if (unit === "time") return ago(Date.now() / 1000 - value);
  return count(value);
}

// A count for each outcome is a row for each; those that never came are told together.
function each({ name, value, unit }) {
  if (value === null || typeof value !== "object") return [{ name, value, unit }];
  const some = Object.entries(value).filter(([, n]) => n);
  if (!some.length) return [{ name, value: 0, unit }];
  return some.map(([key, n]) => ({ name: `${name}, ${key.replace("_", " ")}`, value: n, unit }));
}

function cards(all) {
  // What is not used here has nothing but zeros.
  const used = all.map(({ title, rows }) => ({ title, rows: rows.flatMap(each) })).filter(({ rows }) => rows.some(({ value }) => value));
  at("cards").replaceChildren(...used.map(({ title, rows }) => {
    const section = made("div", undefined, "card"), list = made("dl");
    section.append(made("h3", title), list);
    for (const { name, value, unit } of rows) list.append(made("dt", name), made("dd", written(value, unit)));
    return section;
  }));
}

function gone() {
  const since = heard ? ` The figures below are ${duration((Date.now() - heard) / 1000)} old.` : "";
  document.body.classList.add("stale");
  document.title = "● gateway does not answer";
  banner("bad", `The gateway does not answer: it was stopped, or the way to it is cut.${since}`);
  stands("listeners", "bad");
}

// It runs, and does not let us look.
function shut() {
  if (feed.readyState !== EventSource.CLOSED) return;
  document.body.classList.add("stale");
  document.title = "● gateway shows nothing";
  banner("bad", "The gateway runs, and shows nothing here: too many are looking at it, or its token has changed.");
}

function listen() {
  feed?.close();
  feed = new EventSource("/api/feed");
  feed.addEventListener("status", message => show(JSON.parse(message.data)));
  feed.addEventListener("rejections", message => {
    const now = Date.now() / 1000;
    peers.refused(JSON.parse(message.data).map(one => ({ ...one, at: now - one.seconds })));
  });
  feed.addEventListener("open", () => { gateways.anew(); hour.load().catch(() => {}); });
  feed.onerror = async () => {
    if (feed.readyState === EventSource.CLOSED) setTimeout(listen, AGAIN);
    if (await fetch("/healthz").then(answer => answer.ok, () => false)) shut();
    else gone();
  };
}

setInterval(() => { if (heard && Date.now() - heard > SILENT) gone(); }, 1000);
listen();
