// The streams of a connection that we subscribed to: their demand, and what arrives.
//
// A consumer has `element(octets)`, and `ended(error)`, which is undefined for onComplete;
// neither is called behind a cancel of our own.

import { LIMITS, Violation } from './wire.js';

class Consumed {
  size = undefined;

  /** Requested, and not there. */
  room;

  /** Requested since the last write. */
  asked = 0;

  /** Elements that came. */
  arrived = 0;

  /** It is over, or nobody wants what still comes. */
  dropped = false;

  parts = new Map();

  constructor(id, publisher, demand, consumer, offset = 0) {
    this.id = id;
    this.offset = offset;
    this.publisher = publisher;
    this.room = demand;
    this.consumer = consumer;
  }
}

export class Consuming {
  #session;

  #streams = new Map();

  #cancelled = new Map();

  #asking = [];

  #nextId = 1;

  #unfinished = 0;

  #held = 0;

  #overran = false;

  /** The peer knows how large an element may be. */
  #told = false;

  constructor(session) {
    this.#session = session;
  }

  #stream(id) {
    return this.#streams.get(id) ?? this.#cancelled.get(id);
  }

  /** For the decoder: undefined before onSubscribe. */
  sizeOf(id) {
    return this.#stream(id)?.size;
  }

  /** Subscribes; behind the first `offset` elements, if there is one. */
  subscribe(publisher, initialDemand, consumer, offset) {
    if (this.#session.uses(8) && !this.#told) {
      this.#told = true;
      this.#session.say({ type: 'limits', elementBytes: this.#session.elementBytes });
    }
    const stream = new Consumed(this.#nextId, publisher, initialDemand, consumer, offset);
    this.#nextId += 1;
    this.#streams.set(stream.id, stream);
    const type = offset === undefined ? 'subscribe' : 'subscribeFrom';
    this.#session.say({ type, publisher, subscriber: stream.id, initialDemand, offset });
    return stream;
  }

  /** What is requested before the next write is one message. */
  request(stream, more) {
    if (stream.dropped) return;
    if (!stream.asked) this.#asking.push(stream);
    stream.asked += more;
    stream.room += more;
  }

  /** Says what was requested since the last write. */
  ask() {
    for (const stream of this.#asking) {
      const { id: subscriber, asked: demand } = stream;
      if (!stream.dropped) this.#session.say({ type: 'request', subscriber, demand });
      stream.asked = 0;
    }
    this.#asking = [];
  }

  stored(stream, offset) {
    this.#session.say({ type: 'stored', subscriber: stream.id, offset });
  }

  cancel(stream) {
    if (stream.dropped) return;
    this.#drop(stream);
    if (this.#cancelled.size > LIMITS.remembered) {
      this.#cancelled.delete(this.#cancelled.keys().next().value);
    }
    this.#session.say({ type: 'cancel', subscriber: stream.id });
  }

  #drop(stream) {
    stream.dropped = true;
    this.#forget(stream);
    this.#streams.delete(stream.id);
    this.#cancelled.set(stream.id, stream);
  }

  /** Streams that are subscribed and not over. */
  live() {
    return [...this.#streams.values()];
  }

  /** The connection is over, or about to be: nothing of what still comes is given on. */
  end(why) {
    for (const stream of this.live()) {
      this.#drop(stream);
      stream.consumer.ended(why);
    }
  }

  take(message) {
    const stream = this.#stream(message.subscriber);
    if (!stream) throw new Violation('a signal for a stream that nobody subscribed');
    if (message.type === 'onSubscribe') {
      this.#begin(stream, message.elementSize);
      return;
    }
    if (stream.size === undefined) throw new Violation('a signal before onSubscribe (1.9)');
    switch (message.type) {
      case 'onComplete': this.#ended(stream, undefined); break;
      case 'onError': this.#ended(stream, message.error); break;
      case 'onNext':
        if (this.#charge(stream, 1)) this.#element(stream, message.element);
        break;
      case 'onNextPacked': this.#packed(stream, message.count, message.data); break;
      default: this.#part(stream, message, message.type === 'onNextLastPart');
    }
  }

  #begin(stream, size) {
    if (stream.size !== undefined) {
      this.cancel(stream);
      throw new Violation('a second onSubscribe (2.5)');
    }
    stream.size = size;
    if (size > this.#session.elementBytes) this.#tooLarge(stream, size);
  }

  #ended(stream, error) {
    const told = stream.dropped;
    stream.dropped = true;
    this.#forget(stream);
    this.#streams.delete(stream.id);
    this.#cancelled.delete(stream.id);
    if (!told) stream.consumer.ended(error);
  }

  #packed(stream, count, octets) {
    if (!count) this.#session.control();
    else if (this.#charge(stream, count)) {
      for (let n = 0; n < count && !stream.dropped; n += 1) {
        stream.consumer.element(octets.subarray(n * stream.size, (n + 1) * stream.size));
      }
    }
  }

  /** Takes the demand of elements that begin; whether they are to be taken. */
  #charge(stream, count) {
    const within = stream.room >= count;
    if (stream.dropped) {
      stream.room = Math.max(stream.room - count, -1);
      if (!within) this.#session.control();
      return false;
    }
    if (!within) {
      if (this.#overran) throw new Violation('more elements than requested, again (1.1)');
      this.#overran = true;
      this.#refuse(stream, 'more elements than requested');
      return false;
    }
    stream.room -= count;
    this.#session.moved(count);
    return true;
  }

  #part(stream, { element, data }, last) {
    let joined = stream.parts.get(element);
    if (!joined) {
      if (!this.#charge(stream, 1)) return;
      joined = { pieces: [], size: 0 };
      stream.parts.set(element, joined);
      this.#unfinished += 1;
    }
    joined.pieces.push(data);
    joined.size += data.length;
    this.#held += data.length;
    const { size } = stream;
    if (size && (joined.size > size || (last && joined.size < size))) {
      throw new Violation('parts that do not join to the fixed size');
    }
    const most = this.#session.elementBytes;
    if (joined.size > most) {
      this.#tooLarge(stream, joined.size);
    } else if (last) {
      this.#forgetPart(stream, element);
      this.#element(stream, join(joined));
    } else if (this.#unfinished > LIMITS.unfinishedElements
        || this.#held > LIMITS.unfinishedBytes) {
      this.#refuse(stream, 'too much of unfinished elements');
    }
  }

  #element(stream, element) {
    const most = this.#session.elementBytes;
    if (element.length > most) {
      this.#tooLarge(stream, element.length);
      return;
    }
    stream.arrived += 1;
    stream.consumer.element(element);
  }

  /** Who was not told the limit hears from our goodbye which element it was. */
  #tooLarge(stream, octets) {
    const most = this.#session.elementBytes;
    this.#refuse(stream, `an element of ${octets} octets, limit ${most}`);
    if (this.#told) return;
    const number = stream.offset + stream.arrived + 1;
    throw new Violation(
      `E413 element ${number} of ${stream.publisher} has ${octets} octets, ${most} at most`,
    );
  }

  /** A complaint about what came: a subscriber can only cancel (2.13). */
  #refuse(stream, why) {
    this.cancel(stream);
    stream.consumer.ended(`cancelled here: ${why}`);
  }

  #forgetPart(stream, element) {
    this.#unfinished -= 1;
    this.#held -= stream.parts.get(element).size;
    stream.parts.delete(element);
  }

  #forget(stream) {
    for (const element of stream.parts.keys()) this.#forgetPart(stream, element);
  }
}

function join({ pieces, size }) {
  if (pieces.length === 1) return pieces[0];
  const whole = new Uint8Array(size);
  let at = 0;
  for (const each of pieces) {
    whole.set(each, at);
    at += each.length;
  }
  return whole;
}
