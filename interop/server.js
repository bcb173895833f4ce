// A server that publishes check/… and what it stored, and takes its clients' elements:
//
//   node server.js [PORT]        prints the port
//
// It keeps what it takes in memory: a reference for the protocol, not for storage.
'use strict';

const net = require('net');
const { Connection } = require('./connection.js');
const { Refused } = require('./streams.js');
const { Violation } = require('./wire.js');

const WINDOW = 100;
const TICK_MS = 100;
const PUBLISHERS = ['events', 'more'];
const events = [];
const readers = new Set();
const progress = new Map(); // sender and publisher -> how far it is, its life, its owner

// -- sources: what a subscriber is given

class Numbers {
  constructor(first, end, size, error) {
    Object.assign(this, { next: first, end, size, error });
  }

  take(most) {
    const count = Math.min(most, this.end - this.next);
    const found = Array.from({ length: count }, (_, n) => this.spell(this.next + n));
    this.next += count;
    return found;
  }

  spell(number) {
    if (!this.size) return Buffer.from(String(number));
    const octets = Buffer.alloc(8);
    octets.writeBigUInt64BE(BigInt(number));
    return octets.subarray(8 - this.size);
  }

  over() {
    return this.next >= this.end;
  }
}

class Slow extends Numbers {
  constructor(count, wake) {
    super(0, count, 0);
    this.ready = 0;
    this.timer = setInterval(() => {
      this.ready += 1;
      if (this.ready >= count) this.close();
      wake();
    }, TICK_MS);
  }

  take(most) {
    return super.take(Math.max(Math.min(most, this.ready - this.next), 0));
  }

  close() {
    clearInterval(this.timer);
  }
}

class Large extends Numbers {
  constructor(count, octets) {
    super(0, count, 0);
    this.octets = octets;
  }

  take(most) {
    return super.take(Math.min(most, 1));
  }

  spell() {
    return Buffer.alloc(this.octets, 'x');
  }
}

class Stored {
  constructor(first, wake) {
    Object.assign(this, { next: first, size: 0, wake });
    readers.add(this);
  }

  take(most) {
    const found = events.slice(this.next, this.next + most);
    this.next += found.length;
    return found;
  }

  over() {
    return false;
  }

  close() {
    readers.delete(this);
  }
}

function publish(publisher, offset, wake) {
  const [name, query = ''] = publisher.split('?');
  const keys = Object.fromEntries(new URLSearchParams(query));
  const count = Number(keys.n || 0);
  const first = Number(offset);
  if (offset > 2n ** 53n) throw new Refused('E416 offset out of range');
  if (name === 'check/count' || name === 'check/fail') {
    if (first > count) throw new Refused('E416 offset out of range');
    const error = name === 'check/fail' ? 'E500 as asked' : undefined;
    return new Numbers(first, count, Number(keys.size || 0), error);
  }
  if (name === 'check/endless') return new Numbers(first, Infinity, 0);
  if (name === 'events') {
    return new Stored((keys.from === 'latest' ? events.length : Number(keys.from)) + first, wake);
  }
  if (first) throw new Refused('E416 this can not resume');
  if (name === 'check/slow') return new Slow(count, wake);
  if (name === 'check/never') return { size: 0, take: () => [], over: () => false };
  if (name === 'check/large') return new Large(count, Number(keys.octets));
  throw new Refused('E404 no such publisher');
}

// -- what it takes

function store(stream, element) {
  const seq = Number(stream.offset + stream.taken);
  const known = stream.sender && progress.get(stream.sender);
  if (known) known.stored = BigInt(seq);
  events.push(Buffer.from(JSON.stringify({
    lsn: events.length, channel: stream.publisher, seq,
    payload_base64: element.toString('base64'),
  })));
  for (const reader of readers) setImmediate(reader.wake);
}

function consume(connection, publisher) {
  const { consuming, name, used } = connection;
  if (name === undefined || !used.has(2n)) {
    consuming.subscribe(publisher, WINDOW, { element: store });
    return;
  }
  const sender = JSON.stringify([name, publisher]);
  const known = progress.get(sender) || { stored: 0n };
  progress.set(sender, known);
  consuming.subscribe(publisher, WINDOW, { element: store, sender }, known.stored);
}

// A newer stream of a sender begins: the older one, if there is one, is over.
function takeOver(older, publisher, fenced) {
  if (!older || older.closed) return;
  if (fenced) older.violated('E412 another life of this sender began later');
  else {
    for (const stream of older.consuming.streams.values()) {
      if (stream.publisher === publisher) older.consuming.cancel(stream);
    }
  }
}

const side = {
  server: true,
  extensions: [1, 2, 3, 4, 5, 6, 7],
  helloMs: Number(process.env.HELLO_MS || 10000),
  publish,

  identified(connection) {
    if (connection.used.has(7n)) return; // it announces its publishers
    for (const publisher of PUBLISHERS) consume(connection, publisher);
  },

  announced(connection, { publisher, instance, resumed }) {
    for (const stream of connection.consuming.streams.values()) {
      if (stream.publisher === publisher) throw new Violation('announced again too early');
    }
    if (!PUBLISHERS.includes(publisher)) return;
    const sender = JSON.stringify([connection.name, publisher]);
    const known = progress.get(sender) || { stored: 0n };
    const life = instance.toString('hex');
    const refused = known.life ? known.life !== life : known.stored > 0n;
    if (resumed && refused) {
      throw new Violation('E412 another life of this sender began later');
    }
    progress.set(sender, known);
    if (known.owner !== connection) {
      takeOver(known.owner, publisher, known.life && known.life !== life);
    }
    known.owner = connection;
    known.life = life;
    consume(connection, publisher);
  },
};

const server = net.createServer({ allowHalfOpen: true }, (socket) => new Connection(socket, side));
server.listen(Number(process.argv[2] || 0), '127.0.0.1', () => {
  process.stdout.write(`${server.address().port}\n`);
});
