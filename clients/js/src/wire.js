// Messages of RS.io and their octets, as docs/rsio-v0.md defines them.
//
// A message is an object with `type` and its fields.  A number that JavaScript's do not
// hold exactly is a BigInt; all others are Numbers.

const LAYOUTS = {
  clientHello: [0x01, ['version', 'byte'], ['extensions', 'ids']],
  serverHello: [0x02, ['version', 'byte'], ['extensions', 'ids']],
  goodbye: [0x03, ['reason', 'text']],
  goodbyeAck: [0x04, ['message', 'text']],
  subscribe: [0x10, ['publisher', 'name'], ['subscriber', 'id'], ['initialDemand', 'id']],
  request: [0x11, ['subscriber', 'id'], ['demand', 'id']],
  cancel: [0x12, ['subscriber', 'id']],
  onSubscribe: [0x20, ['subscriber', 'id'], ['elementSize', 'size']],
  onNext: [0x21, ['subscriber', 'id'], ['element', 'element']],
  onComplete: [0x22, ['subscriber', 'id']],
  onError: [0x23, ['subscriber', 'id'], ['error', 'text']],
  onNextPacked: [0x24, ['subscriber', 'id'], ['count', 'packed']],
  onNextPart: [0x25, ['subscriber', 'id'], ['element', 'id'], ['data', 'part']],
  onNextLastPart: [0x26, ['subscriber', 'id'], ['element', 'id'], ['data', 'part']],
  ping: [0x40, ['data', 'short']],
  pong: [0x41, ['data', 'short']],
  subscribeFrom: [0x42, ['publisher', 'name'], ['subscriber', 'id'], ['initialDemand', 'id'],
    ['offset', 'id']],
  stored: [0x43, ['subscriber', 'id'], ['offset', 'id']],
  token: [0x44, ['scheme', 'name'], ['data', 'short']],
  compress: [0x45, ['algorithm', 'id']],
  compressAck: [0x46, ['algorithm', 'id']],
  block: [0x47, ['data', 'part']],
  announce: [0x48, ['publisher', 'name'], ['instance', 'instance'], ['resumed', 'id']],
  limits: [0x49, ['elementBytes', 'id']],
};

/** The extension that a message needs. */
export const EXTENSIONS = {
  ping: 1, pong: 1, subscribeFrom: 2, stored: 2, goodbyeAck: 3, token: 4, compress: 6,
  compressAck: 6, block: 6, announce: 7, limits: 8,
};

/** The most of what a peer may declare or leave unfinished. */
export const LIMITS = {
  textBytes: 4096, nameBytes: 255, instanceBytes: 64, partBytes: 1 << 20,
  declaredBytes: 16 << 20, elementBytes: 16 << 20, extensions: 64,
  unfinishedElements: 64, unfinishedBytes: 16 << 20, inflatedBytes: 16 << 20, streams: 256,
  controlMessages: 1 << 14, controlMessagesPerSecond: 100, remembered: 1 << 16,
};

const OCTETS = {
  text: LIMITS.textBytes, short: LIMITS.textBytes, name: LIMITS.nameBytes,
  instance: LIMITS.instanceBytes, part: LIMITS.partBytes,
};

const UNBOUNDED = 2n ** 63n - 1n;
const TYPES = new Map(Object.entries(LAYOUTS).map(
  ([type, [code, ...fields]]) => [code, { type, fields }],
));
const TEXT_IN = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
const TEXT_OUT = new TextEncoder();
const INCOMPLETE = Symbol('the rest of the message has not arrived');

/** What the peer did against the rules: it ends the conversation. */
export class Violation extends Error {}

/** A demand as a Number: infinite if nobody can live to meet it, 0 if it is not positive. */
export function demandOf(value) {
  if (typeof value === 'number') return value;
  return value > UNBOUNDED ? 0 : Infinity;
}

/** The octets of a text; of octets, these. */
export function octetsOf(value) {
  if (typeof value === 'string') return TEXT_OUT.encode(value);
  if (value instanceof ArrayBuffer) return new Uint8Array(value);
  if (ArrayBuffer.isView(value)) {
    return new Uint8Array(value.buffer, value.byteOffset, value.byteLength);
  }
  throw new TypeError('an element is a string, an ArrayBuffer or a view of one');
}

/** Octets that are to be sent. */
export class Output {
  #data = new Uint8Array(1 << 10);

  size = 0;

  #room(count) {
    if (this.size + count <= this.#data.length) return;
    const grown = new Uint8Array(Math.max(2 * this.#data.length, this.size + count));
    grown.set(this.#data.subarray(0, this.size));
    this.#data = grown;
  }

  octet(value) {
    this.#room(1);
    this.#data[this.size] = value;
    this.size += 1;
  }

  varint(value) {
    if (typeof value === 'bigint' || value === Infinity) {
      let left = value === Infinity ? UNBOUNDED : value;
      for (; left > 0x7fn; left >>= 7n) this.octet(Number(left & 0x7fn) | 0x80);
      this.octet(Number(left));
      return;
    }
    let left = value;
    for (; left > 0x7f; left = Math.floor(left / 128)) this.octet((left % 128) | 0x80);
    this.octet(left);
  }

  raw(octets) {
    this.#room(octets.length);
    this.#data.set(octets, this.size);
    this.size += octets.length;
  }

  bytes(value) {
    const octets = typeof value === 'string' ? TEXT_OUT.encode(value) : value;
    this.varint(octets.length);
    this.raw(octets);
  }

  message(message) {
    const [code, ...fields] = LAYOUTS[message.type];
    this.octet(code);
    for (const [name, kind] of fields) {
      const value = message[name];
      if (kind === 'byte') this.octet(value);
      else if (kind === 'id' || kind === 'size') this.varint(value);
      else if (kind === 'ids') {
        this.varint(value.length);
        for (const each of value) this.varint(each);
      } else this.bytes(value);
    }
  }

  /** onNext; with the element's length if the stream has no fixed size. */
  element(subscriber, octets, fixed) {
    this.octet(0x21);
    this.varint(subscriber);
    if (fixed) this.raw(octets);
    else this.bytes(octets);
  }

  packed(subscriber, elements) {
    this.octet(0x24);
    this.varint(subscriber);
    this.varint(elements.length);
    for (const each of elements) this.raw(each);
  }

  /** What there is; what comes later is apart from it. */
  take() {
    const taken = this.#data.slice(0, this.size);
    this.size = 0;
    return taken;
  }
}

/** Reads messages out of octets that arrive in any pieces. */
export class Decoder {
  #sizeOf;

  #data = new Uint8Array(0);

  #at = 0;

  #end = 0;

  /** Whether what is behind the end is ours to write to. */
  #owned = false;

  /** `sizeOf(id)` is the elementSize of a stream, undefined if there is none. */
  constructor(sizeOf) {
    this.#sizeOf = sizeOf;
  }

  feed(data) {
    const unread = this.#end - this.#at;
    if (!unread) {
      this.#data = data;
      this.#at = 0;
      this.#end = data.length;
      this.#owned = false;
      return;
    }
    if (!this.#owned || this.#end + data.length > this.#data.length) {
      const grown = new Uint8Array(2 * (unread + data.length));
      grown.set(this.#data.subarray(this.#at, this.#end));
      this.#data = grown;
      this.#at = 0;
      this.#end = unread;
      this.#owned = true;
    }
    this.#data.set(data, this.#end);
    this.#end += data.length;
  }

  get unread() {
    return this.#end - this.#at;
  }

  /** The next message; undefined if it is not whole.  Throws `Violation`. */
  next() {
    const start = this.#at;
    if (start === this.#end) return undefined;
    try {
      const code = this.#octet();
      const layout = TYPES.get(code);
      if (layout === undefined) throw new Violation(`unknown type ${code}`);
      const message = { type: layout.type };
      for (const [name, kind] of layout.fields) message[name] = this.#field(kind, message);
      return message;
    } catch (why) {
      if (why !== INCOMPLETE) throw why;
      this.#at = start;
      return undefined;
    }
  }

  #field(kind, message) {
    switch (kind) {
      case 'byte': return this.#octet();
      case 'id': return this.#varint();
      case 'size': return this.#number(LIMITS.declaredBytes, 'a size');
      case 'ids': {
        const count = this.#number(LIMITS.extensions, 'extensions');
        return Array.from({ length: count }, () => this.#varint());
      }
      case 'element':
        return this.#copy(this.#known(message)
          || this.#number(LIMITS.declaredBytes, 'an element'));
      case 'packed': {
        const size = this.#known(message);
        if (!size) throw new Violation('packed elements in a stream without a size');
        const count = this.#number(Math.floor(LIMITS.declaredBytes / size), 'a pack');
        message.data = this.#copy(count * size);
        return count;
      }
      case 'text': case 'name':
        try {
          return TEXT_IN.decode(this.#take(this.#number(OCTETS[kind], kind)));
        } catch (why) {
          if (!(why instanceof TypeError)) throw why;
          throw new Violation('a String that is not UTF-8');
        }
      default: return this.#copy(this.#number(OCTETS[kind], kind));
    }
  }

  #known(message) {
    const size = this.#sizeOf(message.subscriber);
    if (size === undefined) throw new Violation('an element before onSubscribe (1.9)');
    return size;
  }

  #octet() {
    if (this.#at === this.#end) throw INCOMPLETE;
    this.#at += 1;
    return this.#data[this.#at - 1];
  }

  #take(count) {
    const start = this.#at;
    if (start + count > this.#end) throw INCOMPLETE;
    this.#at += count;
    return this.#data.subarray(start, start + count);
  }

  /** Apart from what arrived with them: a small element keeps no large read. */
  #copy(count) {
    return this.#take(count).slice();
  }

  #number(most, what) {
    const value = this.#varint();
    if (value > most) throw new Violation(`${what} of ${value}, limit ${most}`);
    return value;
  }

  #varint() {
    let octet = this.#octet();
    if (octet < 0x80) return octet;
    let value = octet & 0x7f;
    let scale = 128;
    for (let n = 1; n < 7; n += 1) {
      octet = this.#octet();
      value += (octet & 0x7f) * scale;
      if (octet < 0x80) return value;
      scale *= 128;
    }
    let large = BigInt(value);
    for (let n = 7n; n < 10n; n += 1n) {
      octet = this.#octet();
      large |= BigInt(octet & 0x7f) << (7n * n);
      if (octet < 0x80) {
        if (large >> 64n) throw new Violation('a varint of more than 64 bits');
        return large > BigInt(Number.MAX_SAFE_INTEGER) ? large : Number(large);
      }
    }
    throw new Violation('a varint of more than ten octets');
  }
}
