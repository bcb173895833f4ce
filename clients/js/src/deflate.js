// What is sent in blocks, deflated and flushed (RFC 1950, 1951).
//
// Of our own, because nothing that browsers have can flush.  It looks for what came
// before in the last octets sent, and has one code for all: JSON becomes a fifth or so.

import { DISTANCES, LENGTHS } from './inflate.js';

const WINDOW_BYTES = 1 << 15;
const SHORTEST = 4;
const LONGEST = 258;
const PLACES = 1 << 14;

/** Bits in the order of the stream, lowest first. */
class Bits {
  octets = [];

  #bits = 0;

  #held = 0;

  put(value, count) {
    this.#bits |= value << this.#held;
    this.#held += count;
    while (this.#held >= 8) {
      this.octets.push(this.#bits & 0xff);
      this.#bits >>>= 8;
      this.#held -= 8;
    }
  }

  /** A code, which is in the stream with its highest bit first. */
  code(value, count) {
    let turned = 0;
    for (let n = 0; n < count; n += 1) turned |= ((value >> n) & 1) << (count - 1 - n);
    this.put(turned, count);
  }

  /** Nothing, up to the next octet. */
  fill() {
    if (this.#held) this.put(0, 8 - this.#held);
  }
}

/** For each value up to the last, the number of its code. */
function numbered(codes, last) {
  const numbers = new Uint8Array(last + 1);
  let code = 0;
  for (let value = codes[0][0]; value <= last; value += 1) {
    if (code + 1 < codes.length && value >= codes[code + 1][0]) code += 1;
    numbers[value] = code;
  }
  return numbers;
}

const LENGTH_CODES = numbered(LENGTHS, LONGEST);
const DISTANCE_CODES = numbered(DISTANCES, WINDOW_BYTES);

function literal(bits, value) {
  if (value < 144) bits.code(0x30 + value, 8);
  else if (value < 256) bits.code(0x190 + value - 144, 9);
  else if (value < 280) bits.code(value - 256, 7);
  else bits.code(0xc0 + value - 280, 8);
}

/** One zlib stream. */
export class Deflater {
  #window = new Uint8Array(0);

  /** Octets deflated so far, those of the window included. */
  #taken = 0;

  /** Where in all of them four octets that share a place were seen last. */
  #latest = new Float64Array(PLACES).fill(-Infinity);

  /** The block of these octets. */
  block(data) {
    const begin = this.#window.length;
    const all = new Uint8Array(begin + data.length);
    all.set(this.#window);
    all.set(data, begin);
    const bits = new Bits();
    if (!this.#taken) {
      bits.put(0x78, 8);
      bits.put(0x01, 8);
    }
    bits.put(0, 1); // not the last
    bits.put(1, 2); // fixed codes
    this.#search(all, begin, bits);
    literal(bits, 256);
    bits.put(0, 3); // an empty one, which is the flush
    bits.fill();
    bits.octets.push(0, 0, 0xff, 0xff);
    this.#taken += data.length;
    this.#window = all.slice(Math.max(0, all.length - WINDOW_BYTES));
    return Uint8Array.from(bits.octets);
  }

  #search(all, begin, bits) {
    const latest = this.#latest;
    const offset = this.#taken - begin;
    const place = (at) => (Math.imul(
      all[at] | (all[at + 1] << 8) | (all[at + 2] << 16) | (all[at + 3] << 24), 0x9e3779b1,
    ) >>> 18);
    const last = all.length - SHORTEST;
    for (let at = begin; at < all.length;) {
      const before = at <= last ? latest[place(at)] - offset : -1;
      let count = 0;
      if (before >= 0 && at - before <= WINDOW_BYTES) {
        const most = Math.min(LONGEST, all.length - at);
        while (count < most && all[before + count] === all[at + count]) count += 1;
      }
      if (count < SHORTEST) {
        literal(bits, all[at]);
        count = 1;
      } else {
        const length = LENGTH_CODES[count];
        literal(bits, 257 + length);
        bits.put(count - LENGTHS[length][0], LENGTHS[length][1]);
        const distance = DISTANCE_CODES[at - before];
        bits.code(distance, 5);
        bits.put(at - before - DISTANCES[distance][0], DISTANCES[distance][1]);
      }
      for (const end = at + count; at < end; at += 1) if (at <= last) latest[place(at)] = at + offset;
    }
  }
}
