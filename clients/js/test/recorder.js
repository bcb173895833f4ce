// One end of a conversation without a transport: what it published, and what it was given.

import { Refused } from '../src/serving.js';
import { CLOSED, Session } from '../src/session.js';
import { Violation } from '../src/wire.js';

export const hex = (octets) => Buffer.from(octets).toString('hex');
export const octets = (text) => new Uint8Array(Buffer.from(text, 'hex'));

/** Numbers by chance, the same for the same seed. */
export function chance(seed) {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

export class Recorder {
  elements = [];

  unsent = [];

  announces = new Set();

  size = 0;

  demand = 100;

  ended = 'not yet';

  constructor({ server = false, compresses = false } = {}) {
    this.compresses = compresses;
    this.extensions = compresses ? [1, 2, 3, 5, 6] : [1, 2, 3, 5, 7, 8];
    this.session = new Session(this, { server, now: () => 0 });
  }

  opened() {
    this.stream = this.session.consuming.subscribe('events', this.demand, {
      element: (element) => this.elements.push(element),
      ended: (error) => { this.ended = error; },
    });
    if (this.compresses) this.session.compress();
  }

  announced({ publisher }) {
    if (this.announces.has(publisher)) throw new Violation('announced again too early');
    this.announces.add(publisher);
  }

  publish(name) {
    if (name !== 'events') throw new Refused('E404 no such publisher');
    return {
      size: this.size,
      error: undefined,
      next: () => this.unsent.shift(),
      over: () => !this.unsent.length,
    };
  }

  /** Gives it octets, so many at a time. */
  deliver(data, step = data.length) {
    for (let at = 0; at < data.length && this.session.state !== CLOSED; at += step) {
      this.session.received(data.slice(at, at + step));
    }
  }
}
