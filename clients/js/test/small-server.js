// A peer for tests, out of the client's own session: it publishes check/… and what it took,
// and subscribes to "events" and "more".  It keeps all in memory.
//
//   node test/small-server.js [PORT]        prints its port, for rsio-check

import net from 'node:net';
import { pathToFileURL } from 'node:url';
import { Connection } from '../src/connection.js';
import { Refused } from '../src/serving.js';
import { CLOSED, GREETING, Session, UNIDENTIFIED } from '../src/session.js';
import { carrying } from '../src/sockets.js';
import { Violation, octetsOf } from '../src/wire.js';

const WINDOW = 100;
const ELEMENT_BYTES = 1 << 20;
const TICK_MS = 100;
const PUBLISHERS = ['events', 'more'];
const FENCED = 'E412 another life of this sender began later';

// -- sources: what a subscriber is given

class Numbers {
  constructor(first, end, size = 0, error = undefined) {
    Object.assign(this, { at: first, end, size, error });
  }

  next() {
    if (this.over()) return undefined;
    this.at += 1;
    return this.spell(this.at - 1);
  }

  spell(number) {
    if (!this.size) return octetsOf(String(number));
    const octets = new DataView(new ArrayBuffer(8));
    octets.setBigUint64(0, BigInt(number));
    return new Uint8Array(octets.buffer, 8 - this.size);
  }

  over() {
    return this.at >= this.end;
  }
}

class Slow extends Numbers {
  ready = 0;

  constructor(count, wake) {
    super(0, count);
    this.timer = setInterval(() => {
      this.ready += 1;
      if (this.ready >= count) this.ended();
      wake();
    }, TICK_MS);
  }

  next() {
    return this.at < this.ready ? super.next() : undefined;
  }

  ended() {
    clearInterval(this.timer);
  }
}

class Large extends Numbers {
  constructor(count, octets) {
    super(0, count);
    this.spell = () => new Uint8Array(octets).fill(0x78);
  }
}

class Never extends Numbers {
  constructor() {
    super(0, Infinity);
    this.next = () => undefined;
  }
}

// -- what it takes

/** What one of a peer's publishers sends. */
class Taking {
  count = 0;

  granted = 0;

  over = false;

  constructor(peer, publisher, progress) {
    Object.assign(this, { peer, publisher, progress });
    this.first = progress?.stored ?? 0;
    this.stream = peer.session.consuming.subscribe(publisher, WINDOW, this, progress?.stored);
  }

  element(element) {
    this.count += 1;
    const seq = this.first + this.count;
    if (this.progress) this.progress.stored = seq;
    this.peer.server.store(this.publisher, seq, element);
  }

  ended() {
    this.over = true;
  }

  grant() {
    const more = this.count - this.granted;
    if (this.over || this.stream.dropped || !more) return;
    const { session } = this.peer;
    if (session.uses(2)) session.consuming.stored(this.stream, this.first + this.count);
    session.consuming.request(this.stream, more);
    this.granted = this.count;
  }
}

/** One connection. */
class Peer {
  takings = [];

  constructor(server, socket) {
    this.server = server;
    this.extensions = server.extensions;
    this.socket = socket;
    this.session = new Session(this, { server: true, elementBytes: ELEMENT_BYTES });
    this.connection = new Connection(this.session, () => this.afterwards());
    this.connection.begin(carrying(socket, this.connection));
    this.patience = setTimeout(() => {
      if (![GREETING, UNIDENTIFIED].includes(this.session.state)) return;
      this.session.violated('no hello, or no token, in time');
      this.connection.wake();
    }, server.helloMs);
  }

  afterwards() {
    for (const each of this.takings) each.grant();
    for (const each of this.server.readers) each.wake();
    if (this.session.state !== CLOSED) return;
    clearTimeout(this.patience);
    this.server.peers.delete(this);
  }

  publish(name, offset) {
    return this.server.source(name, offset ?? 0, this.connection);
  }

  opened() {
    const { session } = this;
    if (session.uses(7)) return; // it announces its publishers
    for (const each of PUBLISHERS) {
      const known = session.identity !== undefined && session.uses(2);
      this.takings.push(new Taking(this, each, known ? this.progress(each) : undefined));
    }
  }

  progress(publisher) {
    const key = JSON.stringify([this.session.identity, publisher]);
    const { progress } = this.server;
    if (!progress.has(key)) progress.set(key, { stored: 0, life: undefined, owner: undefined });
    return progress.get(key);
  }

  announced({ publisher, instance, resumed }) {
    const live = (each) => each.publisher === publisher && !each.over && !each.stream.dropped;
    if (this.takings.some(live)) throw new Violation('announced again too early');
    if (!PUBLISHERS.includes(publisher)) return;
    const known = this.progress(publisher);
    const life = String(instance);
    const refused = known.life ? known.life !== life : known.stored > 0;
    if (resumed && refused) throw new Violation(FENCED);
    if (known.owner && known.owner !== this) {
      known.owner.takenOver(publisher, known.life && known.life !== life);
    }
    known.owner = this;
    known.life = life;
    this.takings.push(new Taking(this, publisher, known));
  }

  takenOver(publisher, fenced) {
    if (fenced) this.session.violated(FENCED);
    for (const each of this.takings) {
      if (each.publisher === publisher) this.session.consuming.cancel(each.stream);
    }
    this.connection.wake();
  }
}

export class SmallServer {
  extensions = [1, 2, 3, 4, 5, 6, 7, 8];

  /** What it took so far, in order. */
  taken = [];

  events = [];

  /** Sender and publisher, and how far it is. */
  progress = new Map();

  peers = new Set();

  readers = new Set();

  constructor(helloMs = 10_000) {
    this.helloMs = helloMs;
    this.listening = net.createServer({ allowHalfOpen: true }, (socket) => {
      this.peers.add(new Peer(this, socket));
    });
  }

  async listen(port = 0) {
    await new Promise((resolve) => { this.listening.listen(port, '127.0.0.1', resolve); });
    this.port = this.listening.address().port;
    this.address = `tcp://127.0.0.1:${this.port}`;
    return this;
  }

  /** Cuts all connections off, as a crash does. */
  cut() {
    for (const { socket } of this.peers) socket.resetAndDestroy();
  }

  async close() {
    const closed = new Promise((resolve) => { this.listening.close(resolve); });
    this.cut();
    await closed;
  }

  store(channel, seq, element) {
    this.taken.push(element);
    this.events.push(octetsOf(JSON.stringify({
      lsn: this.events.length, channel, seq,
      payload_base64: Buffer.from(element).toString('base64'),
    })));
  }

  source(publisher, first, connection) {
    const [name, query = ''] = publisher.split('?');
    const keys = Object.fromEntries(new URLSearchParams(query));
    const count = Number(keys.n ?? 0);
    const wake = () => connection.wake();
    if (name === 'check/count' || name === 'check/fail') {
      if (first > count) throw new Refused('E416 offset out of range');
      const error = name === 'check/fail' ? 'E500 as asked' : undefined;
      return new Numbers(first, count, Number(keys.size ?? 0), error);
    }
    if (name === 'check/endless') return new Numbers(first, Infinity);
    if (name === 'events') return this.stored(keys.from, first, connection);
    if (first) throw new Refused('E416 this can not resume');
    if (name === 'check/slow') return new Slow(count, wake);
    if (name === 'check/never') return new Never();
    if (name === 'check/large') return new Large(count, Number(keys.octets));
    throw new Refused('E404 no such publisher');
  }

  stored(from, first, connection) {
    let at = (from === 'latest' ? this.events.length : Number(from ?? 0)) + first;
    this.readers.add(connection);
    return {
      size: 0,
      error: undefined,
      next: () => {
        if (at >= this.events.length) return undefined;
        at += 1;
        return this.events[at - 1];
      },
      over: () => false,
      ended: () => this.readers.delete(connection),
    };
  }
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) {
  const server = new SmallServer(Number(process.env.HELLO_MS ?? 10_000));
  await server.listen(Number(process.argv[2] ?? 0));
  process.stdout.write(`${server.port}\n`);
}
