// Messages of RS.io and their octets, as docs/rsio-v0.md defines them.
//
// A message is an object with `type` and its fields.  Ids and Longs are BigInt, for they
// have 64 bits; lengths and counts are Number.
'use strict';

const LAYOUTS = {
  clientHello: [0x01, ['version', 'byte'], ['extensions', 'ids']],
  serverHello: [0x02, ['version', 'byte'], ['extensions', 'ids']],
  goodbye: [0x03, ['reason', 'text']],
  goodbyeAck: [0x04, ['message', 'text']],
  subscribe: [0x10, ['publisher', 'name'], ['subscriber', 'id'], ['demand', 'id']],
  request: [0x11, ['subscriber', 'id'], ['demand', 'id']],
  cancel: [0x12, ['subscriber', 'id']],
  onSubscribe: [0x20, ['subscriber', 'id'], ['size', 'number']],
  onNext: [0x21, ['subscriber', 'id'], ['element', 'element']],
  onComplete: [0x22, ['subscriber', 'id']],
  onError: [0x23, ['subscriber', 'id'], ['error', 'text']],
  onNextPacked: [0x24, ['subscriber', 'id'], ['elements', 'packed']],
  onNextPart: [0x25, ['subscriber', 'id'], ['element', 'id'], ['data', 'part']],
  onNextLastPart: [0x26, ['subscriber', 'id'], ['element', 'id'], ['data', 'part']],
  ping: [0x40, ['data', 'short']],
  pong: [0x41, ['data', 'short']],
  subscribeFrom: [0x42, ['publisher', 'name'], ['subscriber', 'id'], ['demand', 'id'],
    ['offset', 'id']],
  stored: [0x43, ['subscriber', 'id'], ['offset', 'id']],
  token: [0x44, ['scheme', 'name'], ['data', 'short']],
  compress: [0x45, ['algorithm', 'id']],
  compressAck: [0x46, ['algorithm', 'id']],
  block: [0x47, ['data', 'part']],
  announce: [0x48, ['publisher', 'name'], ['instance', 'instance'], ['resumed', 'id']],
};

const EXTENSIONS = {
  ping: 1, pong: 1, subscribeFrom: 2, stored: 2, goodbyeAck: 3, token: 4, compress: 6,
  compressAck: 6, block: 6, announce: 7,
};

const LIMITS = {
  text: 4096, short: 4096, name: 255, part: 1 << 20, instance: 64,
  extensions: 64, declared: 16 << 20, element: 1 << 20, unfinished: 64,
  unfinishedBytes: 16 << 20, inflated: 16 << 20, streams: 256, control: 1 << 14,
};

const UNBOUNDED = 2n ** 63n - 1n;
const TYPES = new Map(Object.entries(LAYOUTS).map(([type, [code]]) => [code, type]));
const UTF8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

class Violation extends Error {}
const INCOMPLETE = Symbol('the rest of the message has not arrived');

function varint(value) {
  const octets = [];
  let left = BigInt(value);
  while (left > 0x7fn) {
    octets.push(Number(left & 0x7fn) | 0x80);
    left >>= 7n;
  }
  octets.push(Number(left));
  return Buffer.from(octets);
}

function encode(message) {
  const [code, ...fields] = LAYOUTS[message.type];
  const pieces = [Buffer.from([code])];
  for (const [name, kind] of fields) {
    const value = message[name];
    switch (kind) {
      case 'byte': pieces.push(Buffer.from([value])); break;
      case 'id': case 'number': pieces.push(varint(value)); break;
      case 'ids': pieces.push(varint(value.length), ...value.map(varint)); break;
      case 'packed': pieces.push(varint(value.length), ...value); break;
      case 'element':
        if (!message.fixed) pieces.push(varint(value.length));
        pieces.push(value);
        break;
      default: {
        const octets = typeof value === 'string' ? Buffer.from(value) : value;
        pieces.push(varint(octets.length), octets);
      }
    }
  }
  return Buffer.concat(pieces);
}

// Reads messages out of octets that arrive in any pieces.
class Decoder {
  // `sizeOf(id)` is the elementSize of a stream, undefined if there is none.
  constructor(sizeOf) {
    this.sizeOf = sizeOf;
    this.data = Buffer.alloc(0);
    this.at = 0;
  }

  feed(data) {
    this.data = Buffer.concat([this.data.subarray(this.at), data]);
    this.at = 0;
  }

  get unread() {
    return this.data.length - this.at;
  }

  // The next message; undefined if it is not whole.  Throws `Violation`.
  next() {
    const start = this.at;
    if (start === this.data.length) return undefined;
    try {
      const type = TYPES.get(this.take(1)[0]);
      if (type === undefined) throw new Violation(`unknown type ${this.data[start]}`);
      const message = { type };
      for (const [name, kind] of LAYOUTS[type].slice(1)) {
        message[name] = this.read(kind, message);
      }
      return message;
    } catch (why) {
      if (why !== INCOMPLETE) throw why;
      this.at = start;
      return undefined;
    }
  }

  read(kind, message) {
    switch (kind) {
      case 'byte': return this.take(1)[0];
      case 'id': return this.varint();
      case 'number': return this.number(LIMITS.declared, 'a size');
      case 'ids': {
        const count = this.number(LIMITS.extensions, 'extensions');
        return Array.from({ length: count }, () => this.varint());
      }
      case 'element': {
        const size = this.known(message);
        if (size) return this.take(size);
        return this.take(this.number(LIMITS.declared, 'an element'));
      }
      case 'packed': {
        const size = this.known(message);
        if (!size) throw new Violation('packed elements in a stream without a size');
        const count = this.number(Math.floor(LIMITS.declared / size), 'a pack');
        const data = this.take(count * size);
        return Array.from({ length: count }, (_, n) => data.subarray(n * size, (n + 1) * size));
      }
      default: {
        const octets = this.take(this.number(LIMITS[kind], kind));
        if (kind !== 'text' && kind !== 'name') return octets;
        try {
          return UTF8.decode(octets);
        } catch {
          throw new Violation('a String that is not UTF-8');
        }
      }
    }
  }

  known(message) {
    const size = this.sizeOf(message.subscriber);
    if (size === undefined) throw new Violation('an element before onSubscribe (1.9)');
    return size;
  }

  take(count) {
    const end = this.at + count;
    if (end > this.data.length) throw INCOMPLETE;
    const octets = this.data.subarray(this.at, end);
    this.at = end;
    return octets;
  }

  number(most, what) {
    const value = this.varint();
    if (value > BigInt(most)) throw new Violation(`${what} of ${value}, limit ${most}`);
    return Number(value);
  }

  varint() {
    let value = 0n;
    for (let shift = 0n; shift < 70n; shift += 7n) {
      const octet = this.take(1)[0];
      value |= BigInt(octet & 0x7f) << shift;
      if (octet < 0x80) {
        if (value >> 64n) throw new Violation('a varint of more than 64 bits');
        return value;
      }
    }
    throw new Violation('a varint of more than ten octets');
  }
}

module.exports = { Decoder, EXTENSIONS, LIMITS, UNBOUNDED, Violation, encode };
