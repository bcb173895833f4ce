// Events as they become durable: a sample, with a filter on every column.

import { at, exact, made, none, put } from "./words.js";
import { Table } from "./tables.js";

const SHOWN = 100, TEXT = 400, RATE = 20;

// exact: a choice of the daemon's own; otherwise a text that is looked for.
const columns = [
  { key: "lsn", name: "lsn", show: one => exact(one.lsn) },
  { key: "received_at", name: "received", kind: "text", show: one => one.received_at },
  { key: "protocol", name: "protocol", kind: "text", exact: true, show: one => one.protocol },
  { key: "listener", name: "listener", kind: "text", exact: true, show: one => one.listener },
  { key: "peer", name: "peer", kind: "text mono", show: one => one.peer },
  { key: "principal", name: "principal", kind: "text long", show: one => one.principal ?? none },
  { key: "session", name: "session", kind: "text mono", show: one => one.session },
  { key: "channel", name: "channel", kind: "text long", show: one => one.channel ?? none },
  { key: "kind", name: "kind", kind: "text", show: one => one.kind },
  { key: "seq", name: "seq", show: one => one.seq ?? none },
  { key: "content_type", name: "content type", kind: "text", show: one => one.content_type },
  { key: "flaw", name: "flaw", kind: "text bad", show: one => one.flaw ?? none },
  { key: "attributes", name: "attributes", kind: "text long mono", secret: true, show: one => one.attributes ? JSON.stringify(one.attributes) : none },
  { key: "payload", name: "payload", kind: "text long mono", secret: true, show: payload },
];

function payload(one) {
  const text = "payload" in one ? JSON.stringify(one.payload) : one.payload_text ?? one.payload_base64;
  return text === undefined ? "not shown without a token" : text.slice(0, TEXT);
}

export class Tap {
  constructor() {
    this.source = null;
    this.events = [];
    this.missed = false;
    this.payloads = null;
    this.table = new Table(at("tap"), columns, { caption: "Events", empty: "none yet" });
    this.fields();
    at("tap-part").addEventListener("toggle", () => { if (!at("tap-part").open) this.stop(); });
    addEventListener("pagehide", () => this.stop());
  }

  fields() {
    const form = at("tap-form");
    for (const column of columns) {
      const label = form.appendChild(made("label", column.name));
      const field = label.appendChild(made(column.exact ? "select" : "input"));
      field.name = (column.exact ? "" : "find.") + column.key;
      if (column.exact) field.add(new Option("all", ""));
      else field.type = "search";
    }
    this.button = form.appendChild(made("button", "show"));
    this.button.type = "submit";
    form.addEventListener("submit", event => {
      event.preventDefault();
      if (this.source) this.stop();
      else this.start();
    });
    form.addEventListener("change", () => { if (this.source) this.start(); });
  }

  /** What there is to choose, and whether payloads may be seen. */
  show({ listeners, payloads }) {
    const form = at("tap-form");
    for (const name of ["protocol", "listener"]) {
      const choice = form.elements[name], there = new Set([...choice.options].map(one => one.value));
      for (const one of listeners) {
        const value = name === "listener" ? one.name : one.protocol;
        if (!there.has(value)) { there.add(value); choice.add(new Option(value, value)); }
      }
    }
    if (this.payloads === payloads) return;
    this.payloads = payloads;
    for (const column of columns) if (column.secret) form.elements["find." + column.key].disabled = !payloads;
    if (!this.source) put(at("tap-about"), payloads
      ? "A sample in which each listener has its share. Payloads may be private: nothing is shown until you ask."
      : "A sample in which each listener has its share. Payloads and attributes want a token: admin.token, or admin.trust_loopback: true.");
  }

  start() {
    this.stop();
    const query = new URLSearchParams({ rate: RATE, fair: "yes", payload: this.payloads ? "yes" : "no" });
    for (const [name, value] of new FormData(at("tap-form"))) if (value) query.set(name, value);
    this.events = [];
    this.missed = false;
    this.table.show([]);
    put(this.button, "stop");
    this.about("waiting for events");
    this.source = new EventSource("/api/tap?" + query);
    this.source.onmessage = message => this.arrived(JSON.parse(message.data));
    this.source.onerror = () => {
      const over = this.source?.readyState === EventSource.CLOSED;
      if (over) this.stop();
      this.about(over ? "refused: too many are looking, or the gateway stops" : "interrupted; trying again");
    };
  }

  stop() {
    this.source?.close();
    this.source = null;
    put(this.button, "show");
  }

  arrived(event) {
    if (event.gap) this.missed = true;
    else this.events = [event, ...this.events].slice(0, SHOWN);
    this.due ||= setTimeout(() => {
      this.due = null;
      this.table.show(this.events);
      this.about(`the newest first, ${RATE} a second at most` + (this.missed ? "; there may be more than are shown" : ""));
    }, 250);
  }

  about(text) {
    put(at("tap-about"), text);
  }
}
