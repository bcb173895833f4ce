// Sends elements, no more than the peer requests, until all of them are acknowledged.

import { CannotResume, Fenced, RsioError, TooLarge } from './errors.js';
import { Link } from './link.js';
import { Outbox } from './outbox.js';
import { Refused } from './serving.js';
import { OPEN, identify } from './session.js';
import { octetsOf } from './wire.js';

/** So much is kept at most, however much the peer requests. */
const OUTBOX_ELEMENTS = 1 << 16;

export class Sender {
  /** Why nothing is sent at present; empty while the peer takes elements. */
  trouble = 'not connected yet';

  #place;

  #publisher;

  #size;

  #outbox = new Outbox();

  #link;

  /** What the peer subscribed to, on this connection. */
  #stream;

  /** Given and not in the outbox, for want of demand. */
  #waiting = [];

  /** Who waits for how many to be acknowledged. */
  #awaited = [];

  /** The most octets of an element that the peer takes, as it said last. */
  #elementBytes;

  /** No more is given. */
  #completed = false;

  #over = false;

  /** Why it failed. */
  #why;

  constructor(place, publisher, size) {
    this.#place = place;
    this.#publisher = publisher;
    this.#size = size;
    this.#link = new Link(place, this.#side());
    this.#link.run();
  }

  /** How many elements were acknowledged. */
  get acknowledged() {
    return this.#outbox.confirmed;
  }

  /** Elements that are not acknowledged, in order; some may be stored all the same. */
  unacknowledged() {
    return [...this.#outbox.unconfirmed(), ...this.#waiting.map(({ element }) => element)];
  }

  async send(element) {
    const octets = octetsOf(element);
    if (this.#size && octets.length !== this.#size) {
      throw new RangeError(`an element of ${octets.length} octets in a stream of ${this.#size}`);
    }
    this.#mayGive();
    const why = this.#tooLarge(octets);
    if (why) throw why;
    if (!this.#waiting.length && this.#room()) {
      this.#outbox.add(octets);
      this.#link.wake();
      return;
    }
    await new Promise((resolve, reject) => {
      this.#waiting.push({ element: octets, resolve, reject });
    });
  }

  async sendAll(elements) {
    for await (const each of elements) await this.send(each);
    await this.stored();
  }

  async stored() {
    const until = this.#outbox.confirmed + this.#outbox.size + this.#waiting.length;
    if (until === this.#outbox.confirmed) return;
    if (this.#why) throw this.#why;
    await new Promise((resolve, reject) => {
      this.#awaited.push({ until, resolve, reject });
    });
  }

  async close() {
    if (this.#why) throw this.#why;
    this.#completed = true;
    const stored = this.stored();
    this.#after();
    await stored;
  }

  abort(why) {
    this.#fail(why instanceof Error ? why
      : new RsioError(why ?? 'aborted before all was acknowledged'));
  }

  writable() {
    return new WritableStream({
      write: (element) => this.send(element),
      close: () => this.close(),
      abort: (why) => this.abort(why),
    });
  }

  /** As far as the peer has said what it takes; it is asked again before it is sent. */
  #tooLarge({ length }) {
    const most = this.#elementBytes;
    return most !== undefined && length > most ? new TooLarge(length, most) : undefined;
  }

  #mayGive() {
    if (this.#why) throw this.#why;
    if (this.#completed) throw new RsioError('it is closed');
  }

  #room() {
    return this.#stream !== undefined && this.#stream.demand > this.#outbox.unsent
      && this.#outbox.size < OUTBOX_ELEMENTS;
  }

  // What comes of what arrived

  #after() {
    if (this.#over) return;
    if (this.#stream?.refused) {
      this.#fail(this.#stream.refused);
      return;
    }
    while (this.#waiting.length && this.#room()) {
      const { element, resolve, reject } = this.#waiting.shift();
      const why = this.#tooLarge(element);
      if (why) {
        this.#refused(this.#outbox.confirmed + this.#outbox.size);
        reject(why);
      } else {
        this.#outbox.add(element);
        resolve();
      }
    }
    while (this.#awaited.length && this.#awaited[0].until <= this.#outbox.confirmed) {
      this.#awaited.shift().resolve();
    }
    if (this.#isComplete()) {
      this.#over = true;
      this.#link.end(this.#stream === undefined); // else the stream completes first
    }
    this.#link.wake();
  }

  /** Elements of the size that all have: those that wait can not be sent. */
  #refuseAll() {
    for (const { element, reject } of this.#waiting) reject(this.#tooLarge(element));
    this.#waiting = [];
    const given = this.#outbox.confirmed + this.#outbox.size;
    for (const each of this.#awaited) each.until = Math.min(each.until, given);
  }

  /** What was the next element behind `number` others will not come. */
  #refused(number) {
    for (const each of this.#awaited) if (each.until > number) each.until -= 1;
  }

  #isComplete() {
    return this.#completed && !this.#outbox.size && !this.#waiting.length;
  }

  #fail(why) {
    if (this.#over) return;
    this.#over = true;
    this.#why = why;
    this.#link.end(true);
    for (const { reject } of [...this.#waiting, ...this.#awaited]) reject(why);
    this.#awaited = [];
  }

  // The connection

  #side() {
    return {
      extensions: this.#place.extensions(true),
      opened: () => this.#opened(),
      publish: (name, offset) => this.#publish(name, offset),
      afterwards: () => this.#after(),
      disconnected: (why) => this.#disconnected(why),
    };
  }

  #opened() {
    const { session } = this.#link;
    identify(session, this.#place);
    if (this.#place.compress && session.uses(6)) session.compress();
    this.trouble = `nobody subscribes to ${this.#publisher}`;
    if (!session.uses(7)) return;
    session.say({
      type: 'announce', publisher: this.#publisher, instance: this.#outbox.instance,
      resumed: this.#outbox.resumed ? 1 : 0,
    });
  }

  #disconnected(why) {
    this.#stream = undefined;
    if (why) this.trouble = why;
    if (why.startsWith('E412')) this.#fail(new Fenced(why));
  }

  #publish(name, offset) {
    if (name !== this.#publisher) throw new Refused('E404 no such publisher');
    if (this.#stream) throw new Refused('E409 one subscriber at a time');
    const why = this.#outbox.rewind(offset, this.#link.session.uses(7));
    this.#stream = this.#source(offset !== undefined, this.#outbox.confirmed);
    const { serving } = this.#link.session;
    this.#elementBytes = serving.elementBytes;
    if (why) {
      this.#stream.refused = new CannotResume(why);
      throw new Refused(`E416 ${why}`);
    }
    const large = serving.whyTooLarge(this.#size || this.#outbox.largest);
    if (large) { // of elements that it took on earlier, when the peer had a larger limit
      this.trouble = large;
      this.#stream = undefined;
      if (this.#size) this.#refuseAll();
      const { session } = this.#link;
      queueMicrotask(() => { // behind the onError
        session.goodbye();
        this.#link.wake();
      });
      throw new Refused(large);
    }
    this.trouble = '';
    return this.#stream;
  }

  /** See serving.js.  `base` elements were confirmed when the stream began. */
  #source(resumes, base) {
    const outbox = this.#outbox;
    let first = true;
    let granted = 0;
    const progress = (before) => {
      // Only what is acknowledged counts: a peer may cancel the same element again and again.
      if (outbox.confirmed > before) this.#link.succeeded();
    };
    const source = {
      size: this.#size,
      error: undefined,
      demand: 0,
      refused: undefined,
      next: () => {
        const element = outbox.next();
        if (element !== undefined) source.demand -= 1;
        return element;
      },
      over: () => this.#isComplete(),
      requested: (more) => {
        const before = outbox.confirmed;
        source.demand += more;
        if (!first) {
          granted += more;
          outbox.demanded(base, granted);
        }
        first = false;
        progress(before);
      },
      stored: (offset) => {
        const before = outbox.confirmed;
        if (!(resumes ? outbox.stored(offset) : outbox.storedOfStream(base, offset))) {
          source.refused = new CannotResume(
            `told that ${offset} elements are stored, more than were sent`,
          );
        }
        progress(before);
      },
      ended: () => this.#streamEnded(source),
    };
    return source;
  }

  #streamEnded(source) {
    const { session } = this.#link;
    if (this.#stream !== source || session?.state !== OPEN || source.refused) return;
    if (!this.#isComplete()) { // nothing is over but this stream: connect again
      this.trouble = 'the peer has cancelled the stream; is an element above its limit?';
    }
    session.goodbye();
  }
}
