// The streams of a connection that the peer subscribed to: their demand, and their turns.
//
// A source has
//
//   size             octets of every element; 0 if they differ
//   next()           the next element; undefined if there is none now
//   over()           whether no element will come any more
//   error            how it is over: undefined for onComplete
//   requested(more)  optional: the subscriber's demand, the first included
//   stored(offset)   optional: the subscriber has so many elements safe
//   ended()          optional: the stream completed or was cancelled, or its connection ended

import { LIMITS, Violation, demandOf } from './wire.js';

/** A message has no more of an element, and no stream more elements in a row. */
const TURN_BYTES = 8192;

/** A subscription that is answered with onError. */
export class Refused extends Error {}

export class Serving {
  #session;

  /** In the order of their turns. */
  #streams = new Map();

  /** The most octets of an element that the peer takes, if it has said so. */
  elementBytes = undefined;

  #asked = false;

  constructor(session) {
    this.#session = session;
  }

  /** The peer says what it takes, before it subscribes. */
  told(elementBytes) {
    if (this.elementBytes !== undefined || this.#asked || !elementBytes) {
      throw new Violation('limits that come again, too late, or allow nothing');
    }
    this.elementBytes = Number(elementBytes);
  }

  /** Why no element of so many octets may be sent; undefined if it may. */
  whyTooLarge(octets) {
    if (this.elementBytes === undefined || octets <= this.elementBytes) return undefined;
    return `E413 an element of ${octets} octets, ${this.elementBytes} at most`;
  }

  take(message) {
    if (message.type === 'subscribe' || message.type === 'subscribeFrom') {
      this.#subscribe(message);
      return;
    }
    const stream = this.#streams.get(message.subscriber);
    if (!stream) return; // it crossed the end of its stream
    if (message.type === 'cancel') this.#remove(stream);
    else if (message.type === 'stored') stream.source.stored?.(message.offset);
    else this.#request(stream, demandOf(message.demand));
  }

  #subscribe({ publisher, subscriber, initialDemand, offset }) {
    this.#asked = true;
    if (this.#streams.has(subscriber)) throw new Violation('the Id is in use (1.10)');
    const demand = demandOf(initialDemand);
    let source;
    try {
      if (this.#streams.size >= LIMITS.streams) throw new Refused('E429 too many streams');
      if (!demand && initialDemand) throw new Refused('E400 demand is not positive (3.9)');
      if (typeof offset === 'bigint') throw new Refused('E416 offset out of range');
      source = this.#session.side.publish(publisher, offset);
      const why = this.whyTooLarge(source.size);
      if (why) throw new Refused(why);
    } catch (why) {
      if (!(why instanceof Refused)) throw why;
      this.#session.say({ type: 'onSubscribe', subscriber, elementSize: 0 });
      this.#session.say({ type: 'onError', subscriber, error: why.message });
      return;
    }
    const stream = { subscriber, source, demand, unsent: undefined, sent: 0, split: 0 };
    this.#streams.set(subscriber, stream);
    this.#session.say({ type: 'onSubscribe', subscriber, elementSize: source.size });
    source.requested?.(demand);
  }

  #request(stream, more) {
    if (more) {
      stream.demand += more;
      stream.source.requested?.(more);
      return;
    }
    const { subscriber } = stream;
    this.#session.say({ type: 'onError', subscriber, error: 'E400 demand is not positive (3.9)' });
    this.#remove(stream);
  }

  #remove(stream) {
    this.#streams.delete(stream.subscriber);
    stream.source.ended?.();
  }

  end() {
    for (const stream of [...this.#streams.values()]) this.#remove(stream);
  }

  /** Gives each stream its turn, until `full` octets are there or none has anything to send. */
  fill(output, full) {
    let moved = true;
    while (moved && output.size < full) {
      moved = false;
      for (const stream of [...this.#streams.values()]) {
        if (this.#streams.get(stream.subscriber) === stream) {
          moved = this.#turn(stream, output) || moved;
        }
      }
    }
  }

  #turn(stream, output) {
    const { subscriber, source } = stream;
    const packs = source.size > 0 && 2 * source.size <= TURN_BYTES;
    const moved = packs ? this.#packed(stream, output) : this.#single(stream, output);
    if (this.#streams.get(subscriber) !== stream) return true;
    if (stream.unsent !== undefined || !source.over()) return moved;
    const { error } = source;
    output.message(error === undefined ? { type: 'onComplete', subscriber }
      : { type: 'onError', subscriber, error });
    this.#remove(stream);
    return true;
  }

  #next(stream) {
    if (stream.unsent !== undefined) return stream.unsent;
    const element = stream.demand > 0 ? stream.source.next() : undefined;
    const why = element && this.whyTooLarge(element.length);
    if (why) {
      this.#session.say({ type: 'onError', subscriber: stream.subscriber, error: why });
      this.#remove(stream);
      return undefined;
    }
    if (element !== undefined) {
      stream.demand -= 1;
      this.#session.moved(1);
    }
    return element;
  }

  #packed(stream, output) {
    const { subscriber, source } = stream;
    const elements = [];
    for (let element; (elements.length + 1) * source.size <= TURN_BYTES
        && (element = this.#next(stream)) !== undefined;) elements.push(element);
    if (elements.length === 1) output.element(subscriber, elements[0], true);
    else if (elements.length) output.packed(subscriber, elements);
    return elements.length > 0;
  }

  #single(stream, output) {
    let left = TURN_BYTES;
    let moved = false;
    for (let element; (element = this.#next(stream)) !== undefined; moved = true) {
      stream.unsent = element;
      if (element.length > TURN_BYTES) {
        if (moved) break;
        this.#part(stream, output);
        return true;
      }
      left -= element.length;
      if (left < 0) break;
      output.element(stream.subscriber, element, stream.source.size > 0);
      stream.unsent = undefined;
    }
    return moved;
  }

  #part(stream, output) {
    const { subscriber, split: element, unsent } = stream;
    const data = unsent.subarray(stream.sent, stream.sent + TURN_BYTES);
    stream.sent += data.length;
    const last = stream.sent === unsent.length;
    output.message({ type: last ? 'onNextLastPart' : 'onNextPart', subscriber, element, data });
    if (last) {
      stream.unsent = undefined;
      stream.sent = 0;
      stream.split += 1;
    }
  }
}
