// One conversation after the other, until whoever has it says that it is over.
//
// A side is one of session.js, and has `afterwards()`, called when something has arrived,
// and `disconnected(why)`, called when a conversation has ended or could not begin.

import { Connection } from './connection.js';
import { CLOSED, Session } from './session.js';
import { open } from './transports.js';

/** As all senders of the gateway's own wait: see `succeeded`. */
const FIRST_MS = 100;
const LAST_MS = 10_000;

export class Link {
  session = undefined;

  #place;

  #side;

  #connection;

  #over = false;

  #pauseMs = FIRST_MS;

  /** Ends the pause between two attempts. */
  #hurry = () => {};

  constructor(place, side) {
    this.#place = place;
    this.#side = side;
  }

  async run() {
    while (!this.#over) {
      const why = await this.#converse();
      this.session = this.#connection = undefined;
      this.#side.disconnected(why);
      if (!this.#over) await this.#pause();
    }
  }

  async #converse() {
    const { url, elementBytes } = this.#place;
    const session = new Session(this.#side, { elementBytes });
    let closed;
    const whole = new Promise((resolve) => { closed = resolve; });
    const connection = new Connection(session, () => {
      if (this.session === session) this.#side.afterwards();
      if (session.state === CLOSED) closed(session.why);
    });
    let transport;
    try {
      transport = await open(this.#place, connection);
    } catch (why) {
      return String(why.errors?.[0] ?? why);
    }
    this.session = session;
    this.#connection = connection;
    connection.begin(transport);
    if (this.#over) this.#leave();
    return whole;
  }

  /** Something was acknowledged, or came: a hello alone is no success. */
  succeeded() {
    this.#pauseMs = FIRST_MS;
  }

  wake() {
    this.#connection?.wake();
  }

  /** No other conversation follows; this one ends when `leaves`, or by itself. */
  end(leaves) {
    this.#over = true;
    this.#hurry();
    if (leaves) this.#leave();
    this.wake();
  }

  #leave() {
    this.session?.goodbye();
    this.wake();
  }

  async #pause() {
    const most = this.#pauseMs;
    this.#pauseMs = Math.min(2 * most, LAST_MS);
    // Half of it is left to chance, so that a thousand clients do not come at once.
    const wait = most / 2 + Math.random() * (most / 2);
    await new Promise((resolve) => {
      const timer = setTimeout(resolve, wait);
      this.#hurry = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }
}
