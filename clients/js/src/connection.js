// Moves octets between a session and a transport, and minds the time.
//
// A transport (transports.js) has `write(octets)`, `buffered()`, `end()` and `destroy()`,
// and calls `received(octets)`, `drained()` and `lost(why)` of whom it was opened for.

import { CLOSED, GREETING, LEAVING } from './session.js';

const HELLO_MS = 10_000;
const SILENCE_MS = 30_000;
/** Before a peer is given up: a gateway that does not read pings once a minute. */
const PINGS = 2;
const GOODBYE_MS = 5_000;
const LAST_MS = 1_000;
/** With so much on its way, nothing more is taken out of a source. */
const FULL_BYTES = 1 << 18;

const soon = globalThis.setImmediate ?? ((call) => setTimeout(call, 0));

export class Connection {
  #transport;

  #session;

  #afterwards;

  #writing = false;

  #pings = 0;

  #leaving = false;

  #ended = false;

  #timer;

  /** `afterwards()` is called when something has arrived, and once at the end. */
  constructor(session, afterwards) {
    this.#session = session;
    this.#afterwards = afterwards;
  }

  /** The transport is open. */
  begin(transport) {
    this.#transport = transport;
    this.#wait(HELLO_MS, () => this.lost('no hello within 10 s: is that RS.io?'));
    this.wake();
  }

  /** There may be something to write: it is written when the program waits. */
  wake() {
    if (this.#writing || !this.#transport) return;
    this.#writing = true;
    soon(() => {
      this.#writing = false;
      this.#write();
    });
  }

  #write() {
    if (this.#ended) return;
    const closed = this.#session.state === CLOSED;
    this.#mindGoodbye();
    if (this.#transport.buffered() > FULL_BYTES && !closed) return;
    const octets = this.#session.fill();
    if (octets.length) this.#transport.write(octets);
    if (closed) this.#end();
    else if (octets.length) this.wake(); // there may be more; first is read what has come
    else this.#mindGoodbye();
  }

  #mindGoodbye() {
    if (this.#session.state !== LEAVING || this.#leaving) return;
    this.#leaving = true;
    this.#wait(GOODBYE_MS, () => this.lost('goodbye was not answered'));
  }

  // What the transport tells

  received(octets) {
    if (this.#ended) return;
    this.#session.received(octets);
    this.#pings = 0;
    if (!this.#leaving && this.#session.state !== GREETING) {
      this.#wait(SILENCE_MS, () => this.#silence());
    }
    this.#told();
  }

  drained() {
    this.wake();
  }

  lost(why) {
    if (this.#ended) return;
    this.#session.lost(why);
    this.#end();
  }

  #silence() {
    if (!this.#session.uses(1)) return;
    if (this.#pings === PINGS) {
      this.lost('no sign of life for a minute and a half');
      return;
    }
    this.#pings += 1;
    this.#session.say({ type: 'ping', data: new Uint8Array(0) });
    this.#wait(SILENCE_MS, () => this.#silence());
    this.wake();
  }

  #told() {
    if (this.#session.state === CLOSED) {
      this.#write(); // its goodbye
      return;
    }
    this.#afterwards();
    this.wake();
  }

  #end() {
    if (this.#ended) return;
    this.#ended = true;
    clearTimeout(this.#timer);
    // What still comes is read: else a reset could take our last message away.
    this.#transport?.end();
    const gone = setTimeout(() => this.#transport?.destroy(), LAST_MS);
    gone.unref?.();
    this.#afterwards();
  }

  #wait(milliseconds, call) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(call, milliseconds);
  }
}
