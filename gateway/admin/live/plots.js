// The hour that the daemon keeps, as four plots; red where the sentence was a bad one.

import { ago, count, duration, made, put, size } from "./words.js";

const PLOTS = [
  { title: "Events made durable", columns: ["events"], show: n => count(n) + "/s" },
  { title: "Ack, p99 and p50", columns: ["ack_p99", "ack_p50"], show: duration },
  { title: "Waiting for Spark", columns: ["waiting_bytes"], show: size },
  { title: "Oldest event in no table", columns: ["freshness"], show: duration },
];
const WIDTH = 600, HEIGHT = 96, HOUR = 3600, LEAST = 240;

function svg(name, kind) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  if (kind) element.setAttribute("class", kind);
  return element;
}

class Plot {
  constructor(about) {
    this.about = about;
    this.figure = made("figure");
    const caption = this.figure.appendChild(made("figcaption"));
    caption.append(made("span", about.title));
    this.most = caption.appendChild(made("small"));
    this.value = caption.appendChild(made("b", "–"));
    this.svg = this.figure.appendChild(svg("svg"));
    this.svg.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
    this.svg.setAttribute("preserveAspectRatio", "none");
    this.svg.setAttribute("role", "img");
    this.red = this.svg.appendChild(svg("path", "red"));
    this.area = this.svg.appendChild(svg("path", "area"));
    this.lines = about.columns.map((_, index) => this.svg.appendChild(svg("path", index ? "line second" : "line")));
    this.cursor = this.svg.appendChild(svg("path", "cursor"));
    const ticks = this.figure.appendChild(made("div", undefined, "ticks"));
    this.ticks = ["1 h ago", "30 min", "now"].map(tick => ticks.appendChild(made("span", tick)));
    this.svg.addEventListener("pointermove", event => this.point(event));
    this.svg.addEventListener("pointerleave", () => { this.cursor.removeAttribute("d"); this.tell(); });
  }

  /** The last `span` seconds: a gateway that has just started has no hour to show. */
  draw(samples, now, span) {
    this.samples = samples;
    this.now = now;
    this.span = span;
    put(this.ticks[0], span === HOUR ? "1 h ago" : ago(span));
    put(this.ticks[1], span === HOUR ? "30 min" : duration(span / 2));
    const x = sample => WIDTH * (1 - (now - sample.at) / span);
    const values = samples.flatMap(sample => this.about.columns.map(column => sample[column] ?? 0));
    const top = Math.max(1e-9, ...values);
    const y = value => HEIGHT - 2 - (HEIGHT - 8) * value / top;
    this.about.columns.forEach((column, index) => {
      const parts = this.parts(samples.filter(sample => x(sample) >= 0), column);
      this.lines[index].setAttribute("d", parts.map(part =>
        "M" + part.map(sample => x(sample).toFixed(1) + "," + y(sample[column]).toFixed(1)).join("L")
        + (part.length > 1 ? "" : "h.01")).join(""));  // one by itself is a dot
      if (!index) this.area.setAttribute("d", parts.map(part =>
        `M${x(part[0]).toFixed(1)},${HEIGHT}L` + part.map(sample => x(sample).toFixed(1) + "," + y(sample[column]).toFixed(1)).join("L")
        + `L${x(part.at(-1)).toFixed(1)},${HEIGHT}Z`).join(""));
    });
    const wide = WIDTH * 5 / span;
    this.red.setAttribute("d", samples.filter(sample => sample.level === "bad" && x(sample) >= 0)
      .map(sample => `M${(x(sample) - wide).toFixed(1)},0h${wide + .3}v${HEIGHT}h${-wide - .3}Z`).join(""));
    this.tell();
  }

  /** Stretches without a gap: where nothing was, there is no line. */
  parts(samples, column) {
    const found = [];
    let before = null;
    for (const sample of samples) {
      if (sample[column] === null) { before = null; continue; }
      if (!before || sample.at - before.at > 12) found.push([]);
      found.at(-1).push(sample);
      before = sample;
    }
    return found;
  }

  tell() {
    const [first] = this.about.columns, last = this.samples?.at(-1);
    const peak = Math.max(0, ...(this.samples || []).map(sample => sample[first] ?? 0));
    put(this.value, last ? this.about.show(last[first]) : "–");
    put(this.most, peak ? `peak ${this.about.show(peak)}` : "");
    this.svg.setAttribute("aria-label", last
      ? `${this.about.title}, the last hour: now ${this.about.show(last[first])}, peak ${this.about.show(peak)}`
      : `${this.about.title}: nothing yet`);
  }

  point(event) {
    if (!this.samples?.length) return;
    const box = this.svg.getBoundingClientRect();
    const wanted = this.now - this.span * (1 - (event.clientX - box.left) / box.width);
    const near = this.samples.reduce((one, other) => Math.abs(other.at - wanted) < Math.abs(one.at - wanted) ? other : one);
    const where = (WIDTH * (1 - (this.now - near.at) / this.span)).toFixed(1);
    this.cursor.setAttribute("d", `M${where},0V${HEIGHT}`);
    const when = new Date(near.at * 1000).toLocaleTimeString(undefined, { timeZoneName: "short" });
    put(this.value, this.about.columns.map(column => this.about.show(near[column])).join(" · ") + " at " + when);
  }
}

export class Hour {
  constructor(element) {
    this.samples = [];
    this.plots = PLOTS.map(about => new Plot(about));
    element.append(...this.plots.map(plot => plot.figure));
  }

  /** All that the daemon has. */
  async load() {
    const answer = await fetch("/api/history", { cache: "no-store" });
    if (!answer.ok) throw new Error("/api/history answers " + answer.status);
    const { every, ...columns } = await answer.json();
    this.samples = columns.at.map((_, index) =>
      Object.fromEntries(Object.entries(columns).map(([name, list]) => [name, list[index]])));
    this.draw();
  }

  /** One more, unless it is known. */
  add(sample) {
    if (!sample || this.samples.at(-1)?.at === sample.at) return;
    this.samples = [...this.samples, sample].slice(-720);
    this.draw();
  }

  draw() {
    const now = this.samples.at(-1)?.at ?? Date.now() / 1000;
    const first = this.samples[0]?.at ?? now;
    const span = Math.min(HOUR, Math.max(LEAST, 120 * Math.ceil((now - first) / 120)));
    for (const plot of this.plots) plot.draw(this.samples, now, span);
  }
}
