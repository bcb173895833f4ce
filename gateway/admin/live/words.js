// Numbers as people read them, and the few ways of this page to put text into a document.

const whole = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });

export const none = "–";
export const at = id => document.getElementById(id);

/** Sets the text of an element, if it is another one. */
export function put(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function count(n) {
  if (n === null || n === undefined) return none;
  return n < 100000 ? whole.format(Math.round(n)) : short.format(n);
}

export const many = (n, noun) => `${count(n)} ${noun}${n === 1 ? "" : "s"}`;

export const exact = n => whole.format(n);

export function size(n) {
  if (n === null || n === undefined) return none;
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let step = 0;
  while (n >= 1024 && step < units.length - 1) { n /= 1024; step++; }
  return (step && n < 100 ? n.toPrecision(3) : Math.round(n)) + " " + units[step];
}

/** A time that something takes or is old: 1.8 ms, 4.2 s, 3 h. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return none;
  if (seconds > 0 && seconds < 1) return (seconds < .0995 ? (seconds * 1000).toPrecision(2) : Math.round(seconds * 1000)) + " ms";
  if (seconds < 10) return seconds.toFixed(1) + " s";
  for (const [unit, name] of [[86400, "d"], [3600, "h"], [60, "min"]])
    if (seconds >= 2 * unit) return Math.floor(seconds / unit) + " " + name;
  return Math.floor(seconds) + " s";
}

export const ago = seconds => seconds === null || seconds === undefined ? none : duration(Math.max(0, seconds)) + " ago";

/** A new element with this text; what senders wrote is text and nothing else. */
export function made(name, text, kind) {
  const element = document.createElement(name);
  if (text !== undefined) element.textContent = text;
  if (kind) element.className = kind;
  return element;
}
