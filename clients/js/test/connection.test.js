// Senders and subscriptions over TCP, whose connections are cut.

import assert from 'node:assert/strict';
import { createServer } from 'node:net';
import { afterEach, beforeEach, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  CannotResume, Disconnected, Fenced, Rsio, RsioError, StreamFailed, TooLarge,
} from 'rsio-client';
import { Connection } from '../src/connection.js';
import { OPEN } from '../src/session.js';
import { SmallServer } from './small-server.js';
import { Recorder, hex, octets } from './recorder.js';

const PATIENCE_MS = 30_000;
let server;

beforeEach(async () => { server = await new SmallServer().listen(); });
afterEach(() => server.close());

const rsio = (options) => Rsio.at(server.address, options);
const text = (octets) => Buffer.from(octets).toString();
const taken = () => server.taken.map(text);
const numbers = (count) => Array.from({ length: count }, (_, n) => `{"n":${n}}`);

async function eventually(happens, what) {
  const end = performance.now() + PATIENCE_MS;
  while (!happens()) {
    assert.ok(performance.now() < end, what);
    await sleep(2);
  }
}

async function all(subscription) {
  const found = [];
  for await (const each of subscription) found.push(text(each));
  return found;
}

test('a named sender has each element stored once, over cut connections', async () => {
  const sender = rsio({ name: 'meter-17' }).sender();
  async function* cutting() {
    for (const [n, each] of numbers(3000).entries()) {
      if (n % 500 === 250) server.cut();
      yield each;
    }
  }
  await sender.sendAll(cutting());
  assert.equal(sender.acknowledged, 3000);
  await sender.close();
  assert.deepEqual(taken(), numbers(3000));
  await assert.rejects(sender.send('{}'), RsioError);
});

test('a sender without a name has each element stored at least once', async () => {
  const sender = rsio().sender();
  await sender.sendAll(numbers(50));
  server.cut();
  await sender.sendAll(numbers(50));
  await sender.close();
  assert.ok(taken().length >= 100);
  assert.deepEqual(new Set(taken()), new Set(numbers(50)));
});

test('a later life follows the earlier one, which is fenced', async () => {
  const earlier = rsio({ name: 'meter-17' }).sender();
  await earlier.sendAll(['first']);
  const later = rsio({ name: 'meter-17' }).sender();
  await later.sendAll(['second']);
  await eventually(() => earlier.trouble.startsWith('E412'), 'it is told');
  await assert.rejects(earlier.send('third'), Fenced);
  await later.close();
  assert.deepEqual(taken(), ['first', 'second']);
});

test('a name that the server has forgotten is not taken up again', async () => {
  const sender = rsio({ name: 'meter-17' }).sender();
  await sender.sendAll(numbers(3));
  for (const known of server.progress.values()) known.stored = 0;
  server.cut();
  await assert.rejects(sender.sendAll(['more']), CannotResume);
  assert.deepEqual(sender.unacknowledged().map(text), ['more']);
});

test('send waits for demand, and sends no more than there is', async () => {
  let said = '';
  const listening = createServer((socket) => {
    socket.on('data', (data) => { said += hex(data); });
    socket.on('error', () => {});
    socket.write(Buffer.from(`0200001006${hex(Buffer.from('events'))}0103`, 'hex'));
  });
  await new Promise((resolve) => { listening.listen(0, '127.0.0.1', resolve); });
  const sender = Rsio.at(`tcp://127.0.0.1:${listening.address().port}`).sender();
  for (const each of ['a', 'b', 'c']) await sender.send(each);
  const fourth = sender.send('d');
  fourth.catch(() => {});
  await eventually(() => said.endsWith('21010163'), 'three are sent');
  assert.equal(sender.unacknowledged().length, 4);
  sender.abort(new Error('enough'));
  await assert.rejects(fourth, /enough/);
  await assert.rejects(sender.stored(), /enough/);
  await eventually(() => said.endsWith('0300'), 'it says goodbye');
  assert.ok(!said.includes('21010164'), 'the fourth was never sent');
  listening.close();
});

test('elements of any size arrive unchanged, in blocks too', async () => {
  const large = Uint8Array.from({ length: 300_000 }, (_, n) => (n * n) >> 3);
  for (const compress of [false, true]) {
    const sender = rsio({ compress }).sender();
    await sender.sendAll([large, '', new Uint8Array(70_000)]);
    await sender.close();
  }
  assert.equal(server.taken.length, 6);
  for (const at of [0, 3]) {
    assert.equal(hex(server.taken[at]), hex(large));
    assert.equal(server.taken[at + 1].length, 0);
    assert.equal(server.taken[at + 2].length, 70_000);
  }
});

test('elements of a fixed size are packed, and another size is refused', async () => {
  const sender = rsio().sender('events', { size: 8 });
  const elements = Array.from({ length: 5000 }, (_, n) => new Float64Array([n]));
  await sender.sendAll(elements);
  await assert.rejects(sender.send('no'), RangeError);
  await sender.close();
  assert.deepEqual(server.taken.map(hex), elements.map((each) => hex(each.buffer)));
});

test('an element above the peer’s limit is refused by itself, and all others are stored', async () => {
  const sender = rsio({ name: 'meter-17' }).sender();
  const large = new Uint8Array((1 << 20) + 1);
  const early = sender.send(large); // before it is known what the peer takes
  const given = numbers(1023).map((each) => sender.send(each));
  await assert.rejects(early, (why) => why instanceof TooLarge && why.most === 1 << 20);
  await Promise.all(given);
  await assert.rejects(sender.send(large), /1048577 octets; the peer takes 1048576/);
  await sender.send('two');
  await sender.close();
  assert.deepEqual(taken(), [...numbers(1023), 'two']);
});

test('elements of a size above the peer’s limit are all refused', async () => {
  const sender = rsio().sender('events', { size: 1 << 21 });
  await assert.rejects(sender.send(new Uint8Array(1 << 21)), TooLarge);
  await eventually(() => sender.trouble.startsWith('E413'), 'it says why');
  sender.abort();
});

test('to a peer that says nothing of its limit it comes again and again, and is named', async () => {
  server.extensions = [1, 2, 3, 4, 5, 6, 7];
  const sender = rsio({ name: 'meter-17' }).sender();
  await sender.send('one');
  await sender.send(new Uint8Array((1 << 20) + 1));
  await eventually(() => /^E413 element 2 of events .*1048577.*1048576/.test(sender.trouble), 'why');
  await eventually(() => sender.acknowledged === 1, 'what is before it');
  sender.abort();
  assert.deepEqual(taken(), ['one']);
});

test('a sender waits for a peer that is not there yet', async () => {
  await server.close();
  const sender = rsio({ name: 'meter-17' }).sender();
  const sent = sender.sendAll(numbers(3));
  await eventually(() => sender.trouble.includes('ECONNREFUSED'), 'it says why');
  server = await new SmallServer().listen(server.port);
  await sent;
  await sender.close();
  assert.deepEqual(taken(), numbers(3));
});

test('a peer that never says anything in TLS is tried again', async () => {
  let came = 0;
  const silent = createServer((socket) => {
    came += 1;
    socket.on('error', () => {});
    socket.resume();
  });
  await new Promise((resolve) => { silent.listen(0, '127.0.0.1', resolve); });
  const where = `tls://127.0.0.1:${silent.address().port}`;
  const sender = Rsio.at(where, { tls: { timeout: 20 } }).sender();
  await eventually(() => came > 1, 'it is tried again');
  assert.match(sender.trouble, /no connection in time/);
  sender.abort();
  silent.close();
});

test('a writable stream ends when all is stored', async () => {
  const left = numbers(500);
  const readable = new ReadableStream({
    pull(controller) {
      if (left.length) controller.enqueue(left.shift());
      else controller.close();
    },
  });
  await readable.pipeTo(rsio({ name: 'meter-17' }).sender().writable());
  assert.deepEqual(taken(), numbers(500));
});

test('a publisher is read to its end, with few elements in flight', async () => {
  for (const window of [1, 3, 64]) {
    const found = await all(rsio().subscribe('check/count?n=500', { window }));
    assert.deepEqual(found, Array.from({ length: 500 }, (_, n) => String(n)));
  }
  const packed = rsio().subscribe('check/count?n=5&size=2');
  const found = [];
  for await (const some of packed.batches()) found.push(...some.map(hex));
  assert.deepEqual(found, ['0000', '0001', '0002', '0003', '0004']);
  assert.equal(packed.size, undefined);
});

test('no more is requested than the window, whoever does not take', async () => {
  const make = server.source.bind(server);
  let source;
  server.source = (...words) => {
    source = make(...words);
    return source;
  };
  const each = rsio().subscribe('check/endless', { window: 10 })[Symbol.asyncIterator]();
  for (let n = 0; n < 200; n += 1) {
    assert.equal(text((await each.next()).value), String(n));
    assert.ok(source.at <= n + 1 + 10, `${source.at} with ${n + 1} taken`);
  }
  await each.return();
  assert.deepEqual(await each.next(), { value: undefined, done: true });
});

test('a lost connection is an error, unless the subscription resumes', async () => {
  const each = rsio().subscribe('check/endless', { window: 2 })[Symbol.asyncIterator]();
  await each.next();
  server.cut();
  await assert.rejects(async () => {
    for (;;) await each.next();
  }, Disconnected);
  const found = [];
  for await (const element of rsio().subscribe('check/count?n=2000', { resume: true, window: 7 })) {
    if (found.length % 500 === 250) server.cut();
    found.push(text(element));
  }
  assert.deepEqual(found, Array.from({ length: 2000 }, (_, n) => String(n)));
});

test('what the publisher says is the error, of one that resumes as well', async () => {
  for (const resume of [false, true]) {
    await assert.rejects(
      all(rsio().subscribe('check/fail?n=2', { resume })),
      (why) => why instanceof StreamFailed && why.message === 'E500 as asked',
    );
  }
  await assert.rejects(all(rsio().subscribe('nothing')), /E404/);
});

test('an element above the limit ends its stream with an error that says so', async () => {
  const subscription = rsio({ elementBytes: 1000 }).subscribe('check/large?n=1&octets=5000');
  await assert.rejects(all(subscription), /1000/);
});

test('a readable stream is read by demand, and cancelled', async () => {
  const reader = rsio().subscribe('check/endless', { window: 4 }).readable().getReader();
  for (let n = 0; n < 20; n += 1) assert.equal(text((await reader.read()).value), String(n));
  await reader.cancel();
  await eventually(() => server.peers.size === 0, 'it has left');
  const joined = [];
  await rsio().subscribe('check/count?n=3').readable().pipeTo(new WritableStream({
    write: (each) => { joined.push(text(each)); },
  }));
  assert.deepEqual(joined, ['0', '1', '2']);
});

test('a loop that is left says goodbye', async () => {
  for await (const each of rsio().subscribe('check/endless')) {
    assert.equal(text(each), '0');
    break;
  }
  await eventually(() => server.peers.size === 0, 'it has left');
});

test('what is no address, and no option, is refused at once', () => {
  for (const wrong of ['gw.example:7400', 'http://gw.example', 'tcp://gw.example', '', undefined]) {
    assert.throws(() => Rsio.at(wrong), TypeError);
  }
  assert.throws(() => rsio({ elementBytes: 0 }), RangeError);
  assert.throws(() => rsio().subscribe('tap', { window: 0 }), RangeError);
  assert.throws(() => rsio().sender('events', { size: -1 }), RangeError);
  assert.throws(() => rsio({ name: 17 }), /name is 17; it must be a string/);
  assert.throws(() => rsio().sender(17), TypeError);
});

test('another WebSocket may be given, and is asked for the subprotocol', async () => {
  const made = [];
  class WebSocket {
    constructor(url, subprotocol) {
      made.push([String(url), subprotocol]);
      queueMicrotask(() => this.onclose({ code: 1006, reason: 'as asked' }));
    }
  }
  const where = 'ws://127.0.0.1:1/rsio';
  await assert.rejects(all(Rsio.at(where, { WebSocket }).subscribe('tap')), /1006 as asked/);
  assert.deepEqual(made, [[where, 'rsio.v0']]);
});

test('a peer that hangs up behind its hello is left alone longer and longer', async (t) => {
  const hangsUp = createServer((socket) => {
    socket.on('error', () => {});
    socket.once('data', () => socket.end(Buffer.from('02000103', 'hex')));
  });
  await new Promise((resolve) => { hangsUp.listen(0, '127.0.0.1', resolve); });
  const pauses = [];
  const { setTimeout: real } = globalThis;
  t.mock.method(Math, 'random', () => 0.3);
  t.mock.method(globalThis, 'setTimeout', (call, milliseconds, ...more) => {
    const isPause = milliseconds % 65 === 0; // no other time of the client is
    if (isPause) pauses.push(milliseconds);
    return real(call, isPause ? 0 : milliseconds, ...more);
  });
  const sender = Rsio.at(`tcp://127.0.0.1:${hangsUp.address().port}`).sender();
  sender.send('one').catch(() => {});
  while (pauses.length < 9) await new Promise((resolve) => { real(resolve, 1); });
  sender.abort();
  hangsUp.close();
  assert.deepEqual(
    pauses.slice(0, 9),
    [65, 130, 260, 520, 1040, 2080, 4160, 6500, 6500],
  );
});

test('a peer is given up when it has said nothing for three half minutes', (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const { session } = new Recorder();
  const connection = new Connection(session, () => {});
  connection.begin({ write() {}, buffered: () => 0, end() {}, destroy() {} });
  connection.received(octets('02000101'));
  for (let n = 0; n < 2; n += 1) {
    t.mock.timers.tick(30_000);
    assert.equal(session.state, OPEN);
  }
  t.mock.timers.tick(30_000);
  assert.equal(session.why, 'no sign of life for a minute and a half');
});
