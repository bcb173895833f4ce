// A client in either role, which connects again until it is done:
//
//   node client.js send HOST:PORT NAME COUNT      {"n":0} … to the publisher "events"
//   node client.js receive HOST:PORT PUBLISHER COUNT      prints that many elements
//
// A sender has a life (extension 7): when another one of its name begins, it gives up.
'use strict';

const crypto = require('crypto');
const net = require('net');
const { Connection } = require('./connection.js');
const { Refused } = require('./streams.js');

const AGAIN_MS = 100;
const WINDOW = 64;
const [role, where, what, count] = process.argv.slice(2);
const [host, port] = where.split(':');

function connect(side) {
  const socket = net.connect({ host, port: Number(port), allowHalfOpen: true });
  return new Connection(socket, { server: false, ...side });
}

function sender(name, total) {
  const instance = crypto.randomBytes(8);
  let resumed = 0;
  let stored = 0n;

  function publish(publisher, offset, wake) {
    if (publisher !== 'events') throw new Refused('E404 no such publisher');
    if (offset > BigInt(total)) throw new Refused('E416 another sender has this name');
    resumed = 1;
    stored = offset;
    let next = Number(offset);
    return {
      size: 0,
      take(most) {
        const some = Math.min(most, total - next);
        next += some;
        return Array.from({ length: some }, (_, n) => Buffer.from(`{"n":${next - some + n}}`));
      },
      stored(far) {
        stored = far;
        wake(); // the stream completes when all is on disk
      },
      over: () => stored === BigInt(total),
    };
  }

  function once() {
    const connection = connect({
      extensions: [1, 2, 3, 4, 5, 7],
      publish,
      opened(self) {
        if (!self.used.has(7n) || !self.used.has(4n)) {
          process.stderr.write('the server does not know instances\n');
          process.exit(1);
        }
        self.send({ type: 'token', scheme: 'name', data: Buffer.from(name) });
        self.send({ type: 'announce', publisher: 'events', instance, resumed });
      },
      closed(_, why) {
        clearInterval(timer);
        if (stored === BigInt(total)) {
          process.stdout.write(`${total} stored\n`);
        } else if (why.startsWith('E412')) {
          process.stderr.write(`${why}; ${stored} stored\n`);
          process.exitCode = 3;
        } else setTimeout(once, AGAIN_MS);
      },
    });
    const timer = setInterval(() => {
      if (stored === BigInt(total)) connection.goodbye('done');
    }, 10);
  }
  once();
}

function receiver(publisher, total) {
  let found = 0;

  function once() {
    const connection = connect({
      extensions: [1, 2, 3, 5],
      publish() {
        throw new Refused('E404 this publishes nothing');
      },
      opened(self) {
        const element = (stream, data) => {
          if (found === total) return;
          found += 1;
          process.stdout.write(`${data}\n`);
          if (found === total) self.goodbye('done');
        };
        const ended = (stream, error) => self.goodbye(error || 'done');
        self.consuming.subscribe(publisher, WINDOW, { element, ended }, BigInt(found));
      },
      closed() {
        if (found < total) setTimeout(once, AGAIN_MS); // else it ends, when all is printed
      },
    });
    return connection;
  }
  once();
}

if (role === 'send') sender(what, Number(count));
else receiver(what, Number(count));
