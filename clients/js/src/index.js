// Reactive Streams IO: publishers and subscribers in another process.

import { Sender } from './sender.js';
import { Subscription } from './subscription.js';
import { checked } from './transports.js';
import { LIMITS } from './wire.js';

export { CannotResume, Disconnected, Fenced, RsioError, StreamFailed, TooLarge } from './errors.js';
export { Sender, Subscription };

const WINDOW = 1024;

function within(what, value, least, most) {
  if (Number.isInteger(value) && value >= least && value <= most) return value;
  throw new RangeError(`${what} is ${value}; ${least} to ${most} are possible`);
}

function text(what, value) {
  if (typeof value === 'string') return value;
  throw new TypeError(`${what} is ${value}; it must be a string`);
}

/** Where a peer is, and who we are there. */
export class Rsio {
  constructor(where, options = {}) {
    const {
      name, token, tls, compress = false, elementBytes = LIMITS.elementBytes,
      WebSocket = globalThis.WebSocket,
    } = options;
    this.url = checked(where);
    this.name = name === undefined ? name : text('name', name);
    this.token = token === undefined ? token : text('token', token);
    this.tls = tls;
    this.compress = compress;
    this.WebSocket = WebSocket;
    this.elementBytes = within('elementBytes', elementBytes, 1, LIMITS.declaredBytes);
    Object.freeze(this);
  }

  static at(where, options) {
    return new Rsio(where, options);
  }

  sender(publisher = 'events', { size = 0 } = {}) {
    return new Sender(this, text('publisher', publisher), within('size', size, 0, LIMITS.declaredBytes));
  }

  subscribe(publisher, { window = WINDOW, resume = false } = {}) {
    const most = Number.MAX_SAFE_INTEGER;
    const size = within('window', window, 1, most);
    return new Subscription(this, text('publisher', publisher), size, resume);
  }

  /** What the hello of a subscriber, or of a sender, lists. */
  extensions(sends) {
    const known = this.name !== undefined || this.token !== undefined;
    return [1, 2, 3, 4, 5, 6, 7, 8]
      .filter((each) => (each !== 4 || known) && (each !== 7 || sends));
  }
}
