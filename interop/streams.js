// The streams of a connection: those that we publish, and those that we consume.
'use strict';

const { LIMITS, UNBOUNDED, Violation } = require('./wire.js');

const PART = 8192;
const AT_ONCE = 256n;
const FULL = 1 << 18;
const TURNS = 16;

class Refused extends Error {}

const least = (one, other) => (one < other ? one : other);

// What the peer subscribed to.
class Publishing {
  constructor(connection) {
    this.connection = connection;
    this.streams = new Map();
    this.sent = 0;
    this.waiting = null;
  }

  take(message) {
    if (message.type.startsWith('subscribe')) {
      this.subscribe(message);
      return;
    }
    const stream = this.streams.get(message.subscriber);
    if (!stream) return; // it crossed the end of its stream
    if (message.type === 'cancel') this.remove(stream);
    else if (message.type === 'stored') stream.source.stored?.(message.offset);
    else this.request(stream, message.demand);
  }

  subscribe({ publisher, subscriber, demand, offset = 0n }) {
    const { connection } = this;
    if (this.streams.has(subscriber)) throw new Violation('the Id is in use (1.10)');
    let source;
    try {
      if (this.streams.size >= LIMITS.streams) throw new Refused('E429 too many streams');
      if (demand > UNBOUNDED) throw new Refused('E400 demand is not positive (3.9)');
      source = connection.side.publish(publisher, offset, () => this.pump());
    } catch (why) {
      if (!(why instanceof Refused)) throw why;
      connection.send({ type: 'onSubscribe', subscriber, size: 0 });
      connection.send({ type: 'onError', subscriber, error: why.message });
      return;
    }
    this.streams.set(subscriber, {
      subscriber, source, demand, unsent: [], sent: 0, split: 0n,
    });
    connection.send({ type: 'onSubscribe', subscriber, size: source.size });
  }

  request(stream, more) {
    if (more > 0n && more <= UNBOUNDED) {
      stream.demand = least(stream.demand + more, UNBOUNDED);
      stream.source.requested?.(more);
    } else {
      this.fail(stream, 'E400 demand is not positive (3.9)');
    }
  }

  remove(stream) {
    this.streams.delete(stream.subscriber);
    stream.source.close?.();
  }

  fail(stream, error) {
    this.remove(stream);
    this.connection.send({ type: 'onError', subscriber: stream.subscriber, error });
  }

  end() {
    for (const stream of this.streams.values()) this.remove(stream);
  }

  // Give each stream a turn while there is demand and the transport takes more; after
  // some turns whatever arrived meanwhile is read, a cancel perhaps.
  pump() {
    const { socket } = this.connection;
    let moved = true;
    socket.cork();
    for (let turns = 0; moved && turns < TURNS && socket.writableLength < FULL; turns += 1) {
      moved = false;
      for (const stream of [...this.streams.values()]) {
        if (this.streams.get(stream.subscriber) === stream && this.turn(stream)) moved = true;
      }
    }
    socket.uncork();
    if (moved && !socket.writableNeedDrain && !this.waiting) {
      this.waiting = setImmediate(() => {
        this.waiting = null;
        this.pump();
      });
    }
  }

  turn(stream) {
    if (stream.unsent.length) return this.some(stream);
    const { source, subscriber } = stream;
    const found = source.take(Number(least(stream.demand, AT_ONCE)));
    if (found.length) this.elements(stream, found);
    if (!found.length && source.over()) {
      if (source.error) this.fail(stream, source.error);
      else {
        this.remove(stream);
        this.connection.send({ type: 'onComplete', subscriber });
      }
    }
    return found.length > 0;
  }

  elements(stream, found) {
    const { source, subscriber } = stream;
    stream.demand -= BigInt(found.length);
    this.sent += found.length;
    const packed = source.size * found.length;
    if (found.length > 1 && packed && packed <= PART) {
      this.connection.send({ type: 'onNextPacked', subscriber, elements: found });
      return;
    }
    stream.unsent = found;
    this.some(stream);
  }

  // A part of a large element, or small ones of its size; then the others have their turn.
  some(stream) {
    const { source, subscriber, unsent } = stream;
    if (unsent[0].length > PART) return this.part(stream);
    let count = 0;
    for (let left = PART; count < unsent.length; count += 1) {
      left -= unsent[count].length;
      if (left < 0) break;
      this.connection.send({
        type: 'onNext', subscriber, element: unsent[count], fixed: !!source.size,
      });
    }
    stream.unsent = unsent.slice(count);
    return true;
  }

  part(stream) {
    const { subscriber, split, unsent: [element] } = stream;
    const data = element.subarray(stream.sent, stream.sent + PART);
    stream.sent += data.length;
    const last = stream.sent === element.length;
    const type = last ? 'onNextLastPart' : 'onNextPart';
    this.connection.send({ type, subscriber, element: split, data });
    if (last) {
      stream.unsent.shift();
      stream.sent = 0;
      stream.split += 1n;
    }
    return true;
  }
}

// What we subscribed to.  `taken(stream, element)` is called for each element.
class Consuming {
  constructor(connection) {
    this.connection = connection;
    this.streams = new Map();
    this.nextId = 1n;
    this.unfinished = 0;
    this.held = 0;
    this.overran = false;
  }

  sizeOf(id) {
    return this.streams.get(id)?.size;
  }

  subscribe(publisher, window, hooks, offset) {
    const stream = {
      subscriber: this.nextId, publisher, size: undefined, room: BigInt(window),
      offset: offset ?? 0n, taken: 0n, granted: 0n, dropped: false, parts: new Map(), ...hooks,
    };
    this.nextId += 1n;
    this.streams.set(stream.subscriber, stream);
    this.connection.send({
      type: offset === undefined ? 'subscribe' : 'subscribeFrom',
      publisher, subscriber: stream.subscriber, demand: window, offset,
    });
    return stream;
  }

  take(message) {
    const stream = this.streams.get(message.subscriber);
    if (!stream) throw new Violation('a signal for a stream that nobody subscribed');
    if (message.type === 'onSubscribe') {
      if (stream.size !== undefined) {
        this.cancel(stream);
        throw new Violation('a second onSubscribe (2.5)');
      }
      stream.size = message.size;
      return;
    }
    if (stream.size === undefined) throw new Violation('a signal before onSubscribe (1.9)');
    this[message.type](stream, message);
  }

  onComplete(stream) {
    this.ended(stream, undefined);
  }

  onError(stream, { error }) {
    this.ended(stream, error);
  }

  ended(stream, error) {
    this.forget(stream);
    this.streams.delete(stream.subscriber);
    if (!stream.dropped && stream.ended) stream.ended(stream, error);
  }

  onNext(stream, { element }) {
    if (this.charge(stream, 1)) this.element(stream, element);
  }

  onNextPacked(stream, { elements }) {
    if (!elements.length || !this.charge(stream, elements.length)) return;
    for (const element of elements) this.element(stream, element);
  }

  onNextPart(stream, part) {
    this.part(stream, part, false);
  }

  onNextLastPart(stream, part) {
    this.part(stream, part, true);
  }

  // Takes the demand of elements that begin; whether there was enough.
  charge(stream, count) {
    if (stream.dropped) return false;
    if (stream.room < BigInt(count)) {
      if (this.overran) throw new Violation('more elements than requested, again (1.1)');
      this.overran = true;
      this.cancel(stream);
      return false;
    }
    stream.room -= BigInt(count);
    return true;
  }

  part(stream, { element, data }, last) {
    const known = stream.parts.get(element);
    if (stream.dropped || (!known && !this.charge(stream, 1))) return;
    const joined = known || { pieces: [], size: 0 };
    if (!known) {
      stream.parts.set(element, joined);
      this.unfinished += 1;
    }
    joined.pieces.push(data);
    joined.size += data.length;
    this.held += data.length;
    const { size } = stream;
    if (size && (joined.size > size || (last && joined.size < size))) {
      throw new Violation('parts that do not join to the fixed size');
    }
    if (last) {
      stream.parts.delete(element);
      this.unfinished -= 1;
      this.held -= joined.size;
      this.element(stream, Buffer.concat(joined.pieces));
    } else if (joined.size > LIMITS.element || this.unfinished > LIMITS.unfinished
        || this.held > LIMITS.unfinishedBytes) {
      this.cancel(stream);
    }
  }

  element(stream, element) {
    if (stream.dropped) return;
    if (element.length > LIMITS.element) {
      this.cancel(stream);
      return;
    }
    stream.taken += 1n;
    stream.element(stream, element);
  }

  cancel(stream) {
    if (stream.dropped) return;
    stream.dropped = true;
    this.forget(stream);
    this.connection.send({ type: 'cancel', subscriber: stream.subscriber });
  }

  forget(stream) {
    for (const { size } of stream.parts.values()) {
      this.unfinished -= 1;
      this.held -= size;
    }
    stream.parts.clear();
  }

  // Ask again for as many elements as were taken, which are stored by now.
  grant() {
    for (const stream of this.streams.values()) {
      const more = stream.taken - stream.granted;
      if (!more || stream.dropped) continue;
      const { subscriber } = stream;
      stream.granted += more;
      stream.room += more;
      if (this.connection.used.has(2n)) {
        this.connection.send({ type: 'stored', subscriber, offset: stream.offset + stream.taken });
      }
      this.connection.send({ type: 'request', subscriber, demand: more });
    }
  }
}

module.exports = { Consuming, Publishing, Refused };
