// The other gateways of admin.peers, and the job among them: a row for each.

import { ago, at, count, duration, none, size } from "./words.js";
import { Table } from "./tables.js";

const EVERY = 5000;
const LEVELS = { good: "ok", warning: "look", bad: "wrong" };

const columns = [
  { key: "name", name: "name", kind: "text", show: one => one.name || one.address },
  { key: "level", name: "state", kind: "text", show: one => LEVELS[one.level] },
  { key: "age_seconds", name: "oldest in no table", show: one => one.age_seconds === 0 ? "none" : duration(one.age_seconds) },
  { key: "waiting_bytes", name: "waiting", show: one => size(one.waiting_bytes) },
  { key: "room_seconds", name: "room for", show: one => one.room_seconds === null ? none : duration(one.room_seconds) },
  { key: "connections", name: "connections", show: one => count(one.connections) },
  { key: "heard_seconds", name: "heard", show: one => one.heard_seconds === null ? "never" : one.heard_seconds ? ago(one.heard_seconds) : "now" },
  { key: "sentence", name: "it says", kind: "text long", show: one => one.sentence },
  { key: "address", name: "address", kind: "text mono", show: one => one.address },
];

export class Gateways {
  constructor() {
    this.table = new Table(at("gateways"), columns, { caption: "All gateways", sort: "name", order: "up" });
    this.anew();
    setInterval(() => { if (!this.alone && !document.hidden) this.ask(); }, EVERY);
  }

  /** Whether there are others to show changes with a start and with a reload. */
  heard({ reload }) {
    if (reload.at !== this.reloaded) this.anew();
    this.reloaded = reload.at;
  }

  anew() {
    this.alone = false;
    this.ask();
  }

  async ask() {
    const answer = await fetch("/api/gateways", { cache: "no-store" }).catch(() => null);
    if (!answer?.ok) return;
    const { gateways } = await answer.json();
    this.alone = gateways.length < 2;
    at("gateways-part").hidden = this.alone;
    if (!this.alone) this.table.show(gateways);
  }
}
