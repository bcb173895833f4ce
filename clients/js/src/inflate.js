// A zlib stream that arrives in blocks, each flushed, is inflated (RFC 1950, 1951).
//
// Of our own, because nothing that browsers have says when all of a block is inflated.

import { Violation } from './wire.js';

const WINDOW_BYTES = 1 << 15;
const ORDER = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];
/** Of a length or distance code: its least value, and how many bits say how much more. */
export const LENGTHS = codes(29, 3, (n) => (n < 4 || n === 28 ? 0 : (n >> 2) - 1));
LENGTHS[28][0] = 258;
export const DISTANCES = codes(30, 1, (n) => (n < 2 ? 0 : (n >> 1) - 1));

function codes(count, first, bitsOf) {
  let least = first;
  return Array.from({ length: count }, (_, n) => {
    const code = [least, bitsOf(n)];
    least += 1 << bitsOf(n);
    return code;
  });
}

const BROKEN = 'a block that can not be inflated';

/** Huffman's code of so many bits for each symbol: how many of each length, and the symbols. */
class Huffman {
  constructor(bits) {
    this.counts = new Uint16Array(16);
    for (const each of bits) this.counts[each] += 1;
    this.counts[0] = 0;
    const next = new Uint16Array(16);
    let left = 1;
    for (let n = 1; n < 16; n += 1) {
      left = 2 * left - this.counts[n];
      if (left < 0) throw new Violation(BROKEN);
      next[n] = next[n - 1] + this.counts[n - 1];
    }
    this.symbols = new Uint16Array(bits.length);
    bits.forEach((each, symbol) => {
      if (!each) return;
      this.symbols[next[each]] = symbol;
      next[each] += 1;
    });
  }
}

const FIXED = [
  new Huffman(Array.from({ length: 288 }, (_, n) => {
    if (n < 144) return 8;
    if (n < 256) return 9;
    return n < 280 ? 7 : 8;
  })),
  new Huffman(new Array(30).fill(5)),
];

/** One zlib stream. */
export class Inflater {
  /** The last octets of earlier blocks, which this one may refer to. */
  #window = new Uint8Array(0);

  #begun = false;

  #data;

  #at = 0;

  #bits = 0;

  #held = 0;

  #out;

  #size = 0;

  #most = 0;

  /**
   * All that a block is made of, no more than `most` octets.
   *
   * Throws `Violation`: what is cut, or is the end of the zlib stream, is no block.
   */
  block(data, most) {
    this.#data = data;
    this.#at = this.#bits = this.#held = 0;
    this.#out = new Uint8Array(Math.max(WINDOW_BYTES + 4 * data.length, 1 << 12));
    this.#out.set(this.#window);
    const begin = this.#window.length;
    this.#size = begin;
    this.#most = begin + most;
    if (!this.#begun) this.#header();
    this.#begun = true;
    while (this.#at < data.length) this.#part();
    const whole = this.#out.slice(begin, this.#size);
    this.#window = this.#out.slice(Math.max(0, this.#size - WINDOW_BYTES), this.#size);
    return whole;
  }

  #header() {
    const header = this.#need(16);
    const [method, flags] = [header & 0xff, header >> 8];
    if ((method & 15) !== 8 || method >> 4 > 7 || flags & 32 || (method * 256 + flags) % 31) {
      throw new Violation(BROKEN);
    }
  }

  /** One block of deflate, which is not what we call one. */
  #part() {
    if (this.#need(1)) throw new Violation('the end of the zlib stream');
    switch (this.#need(2)) {
      case 0: this.#plain(); break;
      case 1: this.#coded(...FIXED); break;
      case 2: this.#coded(...this.#dynamic()); break;
      default: throw new Violation(BROKEN);
    }
  }

  #need(count) {
    while (this.#held < count) {
      if (this.#at === this.#data.length) throw new Violation(BROKEN);
      this.#bits |= this.#data[this.#at] << this.#held;
      this.#at += 1;
      this.#held += 8;
    }
    const value = this.#bits & ((1 << count) - 1);
    this.#bits >>>= count;
    this.#held -= count;
    return value;
  }

  #room(count) {
    if (this.#size + count > this.#most) throw new Violation('a block that inflates to too much');
    if (this.#size + count <= this.#out.length) return;
    const grown = new Uint8Array(2 * Math.max(this.#out.length, this.#size + count));
    grown.set(this.#out.subarray(0, this.#size));
    this.#out = grown;
  }

  #plain() {
    this.#bits = this.#held = 0; // no more than seven: the rest of an octet
    const count = this.#need(16);
    if ((count ^ this.#need(16)) !== 0xffff) throw new Violation(BROKEN);
    if (this.#at + count > this.#data.length) throw new Violation(BROKEN);
    this.#room(count);
    this.#out.set(this.#data.subarray(this.#at, this.#at + count), this.#size);
    this.#at += count;
    this.#size += count;
  }

  #symbol(huffman) {
    let code = 0;
    let first = 0;
    let index = 0;
    for (let n = 1; n < 16; n += 1) {
      code |= this.#need(1);
      const count = huffman.counts[n];
      if (code - count < first) return huffman.symbols[index + code - first];
      index += count;
      first = 2 * (first + count);
      code *= 2;
    }
    throw new Violation(BROKEN);
  }

  #dynamic() {
    const literals = this.#need(5) + 257;
    const distances = this.#need(5) + 1;
    const count = this.#need(4) + 4;
    const bits = new Array(19).fill(0);
    for (let n = 0; n < count; n += 1) bits[ORDER[n]] = this.#need(3);
    const huffman = new Huffman(bits);
    const found = [];
    while (found.length < literals + distances) {
      const symbol = this.#symbol(huffman);
      if (symbol < 16) found.push(symbol);
      else if (symbol === 16) {
        if (!found.length) throw new Violation(BROKEN);
        this.#repeat(found, found.at(-1), 3 + this.#need(2));
      } else this.#repeat(found, 0, symbol === 17 ? 3 + this.#need(3) : 11 + this.#need(7));
    }
    if (literals > 286 || found.length > literals + distances || !found[256]) {
      throw new Violation(BROKEN);
    }
    return [new Huffman(found.slice(0, literals)), new Huffman(found.slice(literals))];
  }

  #repeat(found, bits, count) {
    for (let n = 0; n < count; n += 1) found.push(bits);
  }

  #coded(literals, distances) {
    for (;;) {
      const symbol = this.#symbol(literals);
      if (symbol === 256) return;
      if (symbol < 256) {
        this.#room(1);
        this.#out[this.#size] = symbol;
        this.#size += 1;
      } else this.#again(symbol - 257, distances);
    }
  }

  #again(length, distances) {
    if (length >= LENGTHS.length) throw new Violation(BROKEN);
    const count = LENGTHS[length][0] + this.#need(LENGTHS[length][1]);
    const code = this.#symbol(distances);
    if (code >= DISTANCES.length) throw new Violation(BROKEN);
    const distance = DISTANCES[code][0] + this.#need(DISTANCES[code][1]);
    if (distance > this.#size) throw new Violation(BROKEN);
    this.#room(count);
    for (let n = 0; n < count; n += 1, this.#size += 1) {
      this.#out[this.#size] = this.#out[this.#size - distance];
    }
  }
}
