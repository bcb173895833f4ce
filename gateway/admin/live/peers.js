// Listeners, connections and rejections: who sends, and who was rejected.

import { ago, at, count, duration, none, put, size } from "./words.js";
import { Table, finds } from "./tables.js";

const EVERY = 3000;

const listenerColumns = [
  { key: "name", name: "name", kind: "text", show: one => one.name },
  { key: "protocol", name: "protocol", kind: "text", show: one => one.protocol },
  { key: "address", name: "address", kind: "text mono", show: one => one.address },
  { key: "connections", name: "connections", show: one => count(one.connections) },
  { key: "rate", name: "events/s", show: one => count(one.rate) },
  { key: "speed", name: "bytes/s", show: one => size(one.speed) },
  { key: "events", name: "events", show: one => count(one.events) },
  { key: "bytes", name: "bytes", show: one => size(one.bytes) },
  { key: "unacknowledged", name: "not acknowledged", show: one => size(one.unacknowledged) },
  { key: "age", name: "oldest in no table", show: one => one.age === 0 ? "none" : duration(one.age) },
  { key: "turned", name: "rejected", show: one => count(one.turned) },
  { key: "last_error", name: "last error", kind: "text long", show: one => one.last_error || none },
];
const connectionColumns = [
  { key: "peer", name: "peer", kind: "text mono", show: one => one.peer },
  { key: "listener", name: "listener", kind: "text", show: one => one.listener },
  { key: "principal", name: "principal", kind: "text long", show: one => one.principal || none },
  { key: "seconds", name: "open for", show: one => duration(one.seconds) },
  { key: "bytes", name: "bytes", show: one => size(one.bytes) },
  { key: "events", name: "events", show: one => count(one.events) },
  { key: "unacknowledged", name: "not acknowledged", show: one => size(one.unacknowledged) },
  { key: "last_error", name: "last error", kind: "text long", show: one => one.last_error || none },
  { key: "session", name: "session", kind: "text mono", show: one => one.session },
];
const rejectionColumns = [
  { key: "peer", name: "peer", kind: "text mono", show: one => one.peer },
  { key: "listener", name: "listener", kind: "text", show: one => one.listener },
  { key: "why", name: "rule", kind: "text long", show: one => one.why },
  { key: "key", name: "key", kind: "text mono", show: one => one.key || none },
  { key: "count", name: "times", show: one => count(one.count) },
  { key: "at", name: "last", show: one => ago(Date.now() / 1000 - one.at) },
];

export class Peers {
  constructor() {
    this.before = null;
    this.known = {};
    this.rejections = [];
    this.listeners = new Table(at("listeners"), listenerColumns, { caption: "Listeners", sort: "name", order: "up" });
    this.connections = new Table(at("connections"), connectionColumns, {
      caption: "Connections", sort: "bytes", sorted: () => this.ask(), empty: "nobody",
    });
    this.rejected = new Table(at("rejections"), rejectionColumns, { caption: "Rejections", sort: "at", empty: "none" });
    at("listeners-find").addEventListener("input", () => this.listed());
    at("rejections-find").addEventListener("input", () => this.refused(this.rejections));
    for (const id of ["connections-find", "connections-listener"]) at(id).addEventListener("input", () => this.ask());
    at("connections-part").addEventListener("toggle", () => this.ask());
    setInterval(() => { if (!document.hidden) this.ask(); }, EVERY);
  }

  /** What is not acknowledged on all listeners; null before somebody looked. */
  get unacknowledged() {
    const all = Object.values(this.known);
    return this.asked ? all.reduce((sum, one) => sum + one.unacknowledged, 0) : null;
  }

  show(status) {
    const now = performance.now(), before = this.before;
    const seconds = before && status.uptime_seconds >= before.uptime ? (now - before.now) / 1000 : 0;
    this.rows = status.listeners.map(one => {
      const then = seconds > 0 ? before.listeners.get(one.name) : null;
      const refused = Object.entries(one.rejected).filter(([, n]) => n > 0);
      return {
        ...one, age: status.freshness?.listeners[one.name] ?? null,
        rate: then ? Math.max(0, one.events - then.events) / seconds : null,
        speed: then ? Math.max(0, one.bytes - then.bytes) / seconds : null,
        turned: refused.reduce((sum, [, n]) => sum + n, 0),
        reasons: refused.map(([why]) => why).join(", "),
      };
    });
    this.before = { now, uptime: status.uptime_seconds, listeners: new Map(status.listeners.map(one => [one.name, one])) };
    this.listed();
    const choice = at("connections-listener"), there = new Set([...choice.options].map(one => one.value));
    for (const { name } of status.listeners) if (!there.has(name)) choice.add(new Option(name, name));
  }

  listed() {
    const rows = (this.rows || []).map(one => ({
      ...one, unacknowledged: this.known[one.name]?.unacknowledged ?? (this.asked ? 0 : null),
      last_error: this.known[one.name]?.last_error ?? null,
    }));
    this.listeners.show(rows.filter(row => finds(row, at("listeners-find").value)));
  }

  async ask() {
    const open = at("connections-part").open;
    const query = new URLSearchParams({
      sort: this.connections.sort, order: this.connections.order, limit: open ? 200 : 1, find: at("connections-find").value,
    });
    if (at("connections-listener").value) query.set("listener", at("connections-listener").value);
    try {
      const answer = await fetch("/api/connections?" + query, { cache: "no-store" });
      if (!answer.ok) return;
      const { total, found, connections, listeners } = await answer.json();
      this.asked = true;
      this.known = listeners;
      this.listed();
      put(at("connections-about"), `${count(total)} open` + (open && connections.length < found ? `, ${connections.length} of ${count(found)} shown` : ""));
      if (open) this.connections.show(connections);
    } catch { /* the feed says that nobody answers */ }
  }

  refused(rows) {
    this.rejections = rows;
    const newest = rows[0];
    put(at("rejections-about"), newest ? `the last ${ago(Date.now() / 1000 - newest.at)}: ${newest.listener}, ${newest.why}` : "none since the start");
    this.rejected.show(rows.filter(row => finds(row, at("rejections-find").value)));
  }
}
