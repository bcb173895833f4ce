// Elements of a publisher in another process, requested as they are taken.

import { CannotResume, Disconnected, StreamFailed } from './errors.js';
import { Link } from './link.js';
import { Refused } from './serving.js';
import { CLOSED, identify } from './session.js';

export class Subscription {
  /** Why nothing comes at present; empty while the publisher is subscribed to. */
  trouble = 'not connected yet';

  #place;

  #publisher;

  #window;

  #resumes;

  #link;

  #begun = false;

  #stream;

  /** How many elements; the next connection goes on behind them. */
  #received = 0;

  #arrived = [];

  /** How many of those received the program has not taken. */
  #held = 0;

  /** Taken since the last request. */
  #taken = 0;

  #over = false;

  #error;

  #waiting = [];

  constructor(place, publisher, window, resumes) {
    this.#place = place;
    this.#publisher = publisher;
    this.#window = window;
    this.#resumes = resumes;
    this.#link = new Link(place, this.#side());
  }

  /** Octets of every element; 0 if they differ, undefined before it is known. */
  get size() {
    return this.#stream?.size;
  }

  [Symbol.asyncIterator]() {
    let some = [];
    let at = 0;
    return {
      next: async () => {
        if (at === some.length) {
          [some, at] = [await this.#some(), 0];
          if (!some.length) return { value: undefined, done: true };
        }
        at += 1;
        this.#took(1);
        return { value: some[at - 1], done: false };
      },
      return: async () => {
        this.cancel();
        return { value: undefined, done: true };
      },
      [Symbol.asyncIterator]() {
        return this;
      },
    };
  }

  async* batches() {
    try {
      for (let some; (some = await this.#some()).length;) {
        this.#took(some.length);
        yield some;
      }
    } finally {
      this.cancel();
    }
  }

  readable() {
    const each = this[Symbol.asyncIterator]();
    return new ReadableStream({
      async pull(controller) {
        const { value, done } = await each.next();
        if (done) controller.close();
        else controller.enqueue(value);
      },
      cancel: () => this.cancel(),
    }, { highWaterMark: 0 });
  }

  cancel() {
    if (this.#stream) this.#link.session.consuming.cancel(this.#stream);
    this.#stream = undefined;
    this.#arrived = [];
    this.#finish(undefined);
  }

  /** Waits for elements; none is the end. */
  async #some() {
    if (!this.#begun) {
      this.#begun = true;
      if (!this.#over) this.#link.run();
    }
    while (!this.#arrived.length && !this.#over) {
      await new Promise((resolve) => { this.#waiting.push(resolve); });
    }
    const some = this.#arrived;
    this.#arrived = [];
    if (some.length || !this.#error) return some;
    const error = this.#error;
    this.#error = undefined;
    throw error;
  }

  /** The window is what was requested and has not been taken. */
  #took(count) {
    this.#held -= count;
    this.#taken += count;
    if (2 * this.#taken < this.#window || !this.#stream) return;
    this.#link.session.consuming.request(this.#stream, this.#taken);
    this.#taken = 0;
    this.#link.wake();
  }

  #finish(error) {
    if (this.#over) return;
    this.#over = true;
    this.#error = error;
    this.#link.end(true);
    this.#wake();
  }

  #wake() {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const resolve of waiting) resolve();
  }

  // The connection

  #side() {
    return {
      extensions: this.#place.extensions(false),
      opened: () => this.#opened(),
      publish: () => { throw new Refused('E404 this publishes nothing'); },
      afterwards: () => this.#wake(),
      disconnected: (why) => this.#disconnected(why),
    };
  }

  #opened() {
    const { session } = this.#link;
    identify(session, this.#place);
    if (this.#resumes && !session.uses(2)) {
      this.#finish(new CannotResume('the peer does not know offsets'));
      return;
    }
    this.trouble = '';
    this.#taken = 0;
    this.#stream = session.consuming.subscribe(
      this.#publisher, this.#window - this.#held, this,
      this.#resumes ? this.#received : undefined,
    );
  }

  #disconnected(why) {
    this.#stream = undefined;
    this.trouble = why || 'the peer said goodbye';
    if (!this.#resumes) this.#finish(new Disconnected(this.trouble));
  }

  // A consumer; see consuming.js

  element(element) {
    this.#received += 1;
    this.#held += 1;
    this.#arrived.push(element);
    this.#link.succeeded();
  }

  ended(why) {
    const { session } = this.#link;
    if (session.state === CLOSED || !this.#stream) return; // the connection's end, which says why
    this.#stream = undefined;
    if (why === undefined) this.#finish(undefined);
    else if (!this.#resumes || !why.startsWith('E503')) this.#finish(new StreamFailed(why));
    else session.goodbye();
  }
}
