// Two sessions that talk, with their octets cut anywhere; blocks; an outbox over lost connections.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import zlib from 'node:zlib';
import { Deflater } from '../src/deflate.js';
import { Inflater } from '../src/inflate.js';
import { Outbox } from '../src/outbox.js';
import { GREETING, OPEN } from '../src/session.js';
import { Output, Violation } from '../src/wire.js';
import { Recorder, chance, hex, octets } from './recorder.js';

function element(size, number) {
  return Uint8Array.from({ length: size }, (_, n) => (number * 31 + n) & 0xff);
}

/** Elements of any size, cut anywhere; whether what was sent is what came. */
function talk(seed) {
  const below = chance(seed);
  const compresses = below(2) === 1;
  const reader = new Recorder({ compresses });
  const writer = new Recorder({ server: true, compresses });
  const demand = 1 + below(9);
  reader.demand = demand;
  writer.size = below(2) ? 1 + below(below(4) ? 40 : 20_000) : 0;
  const sizes = Array.from({ length: below(40) }, () => below(below(4) ? 100 : 40_000));
  writer.unsent = sizes.map((size, n) => element(writer.size || size, n));
  const expected = writer.unsent.map(hex);
  const cuts = Array.from({ length: 1 + below(20) }, () => 1 + below(below(2) ? 20 : 30_000));
  let requested = demand;
  let cut = 0;
  for (let moved = true; moved;) {
    moved = false;
    for (const [from, to] of [[reader, writer], [writer, reader]]) {
      const said = from.session.fill();
      moved ||= said.length > 0;
      for (let at = 0; at < said.length;) {
        const step = cuts[cut % cuts.length];
        cut += 1;
        to.deliver(said.slice(at, at + step));
        at += step;
      }
    }
    assert.ok(reader.elements.length <= requested);
    if (reader.elements.length === requested && reader.ended === 'not yet') {
      reader.session.consuming.request(reader.stream, demand);
      requested += demand;
    }
  }
  assert.equal(reader.session.state, OPEN, reader.session.why);
  assert.equal(writer.session.state, OPEN, writer.session.why);
  assert.deepEqual(reader.elements.map(hex), expected);
  assert.equal(reader.ended, undefined);
}

test('what is published is what arrives, never more than was requested', () => {
  for (let seed = 1; seed <= 150; seed += 1) talk(seed);
});

test('elements that are acknowledged one by one, by stored and request, are no flood', () => {
  const publisher = new Recorder();
  const output = new Output();
  output.message({ type: 'serverHello', version: 0, extensions: [2] });
  output.message({
    type: 'subscribe', publisher: 'events', subscriber: 1, initialDemand: 1,
  });
  publisher.unsent.push(element(1, 0));
  for (let n = 1; n <= 20_000; n += 1) {
    publisher.unsent.push(element(1, n)); // one more than is requested
    publisher.deliver(output.take());
    publisher.session.fill();
    output.message({ type: 'stored', subscriber: 1, offset: n });
    output.message({ type: 'request', subscriber: 1, demand: 1 });
  }
  assert.equal(publisher.session.state, OPEN, publisher.session.why);
});

test('any octets are taken or refused', () => {
  for (let seed = 1; seed <= 500; seed += 1) {
    const below = chance(seed);
    const recorder = new Recorder({ server: true, compresses: true });
    recorder.deliver(octets('0100020106'));
    recorder.deliver(Uint8Array.from({ length: below(200) }, () => below(below(2) ? 256 : 0x48)));
    recorder.session.fill();
    assert.notEqual(recorder.session.state, GREETING);
  }
});

/** Octets of a seed: noise, words that come again, or one octet. */
function sample(below) {
  const size = below(below(3) ? 2_000 : 90_000);
  const kind = below(4);
  if (kind === 0) return Uint8Array.from({ length: size }, () => below(256));
  if (kind === 1) return new Uint8Array(size).fill(below(256));
  const lines = Array.from({ length: size / 40 }, () => `{"n":${below(1000)},"kWh":${below(9)}}`);
  return new Uint8Array(Buffer.from(lines.join('\n')));
}

/** One zlib stream of Node's, which gives what is inflated or deflated so far. */
function flowing(stream) {
  let pieces = [];
  stream.on('data', (piece) => pieces.push(piece));
  return (data) => new Promise((resolve, reject) => {
    stream.once('error', reject);
    stream.write(data);
    stream.flush(zlib.constants.Z_SYNC_FLUSH, () => {
      const whole = Buffer.concat(pieces);
      pieces = [];
      resolve(new Uint8Array(whole));
    });
  });
}

test('what we deflate zlib inflates, and the other way round, block by block', async () => {
  for (let seed = 1; seed <= 40; seed += 1) {
    const below = chance(seed);
    const [ours, inflate] = [new Deflater(), flowing(zlib.createInflate())];
    const deflate = flowing(zlib.createDeflate({ level: below(10) }));
    const [theirs, own] = [new Inflater(), new Inflater()];
    for (let n = 0; n < 6; n += 1) {
      const data = sample(below);
      if (!data.length) continue;
      const block = ours.block(data);
      assert.equal(hex(await inflate(block)), hex(data));
      assert.equal(hex(own.block(block, data.length)), hex(data));
      assert.equal(hex(theirs.block(await deflate(data), data.length)), hex(data));
    }
  }
});

test('what comes again is sent shorter, blocks later too', () => {
  const deflater = new Deflater();
  const data = new Uint8Array(Buffer.from('{"meter":17,"kWh":17.5,"place":"Lübeck"}'));
  const first = deflater.block(data).length;
  assert.ok(deflater.block(data).length < first / 2);
});

test('damaged blocks and large ones are violations, and nothing else', () => {
  const data = new Uint8Array(Buffer.from('{"n":1}'.repeat(3000)));
  const block = new Uint8Array(zlib.deflateSync(data, { finishFlush: zlib.constants.Z_SYNC_FLUSH }));
  assert.equal(new Inflater().block(block, data.length).length, data.length);
  assert.throws(() => new Inflater().block(block, data.length - 1), Violation);
  assert.throws(() => new Inflater().block(new Uint8Array(zlib.deflateSync(data)), 1 << 20), Violation);
  for (let seed = 1; seed <= 2000; seed += 1) {
    const below = chance(seed);
    const damaged = block.slice(0, below(2) ? undefined : 1 + below(block.length));
    for (let n = below(3); n >= 0; n -= 1) damaged[below(damaged.length)] = below(256);
    try {
      assert.ok(new Inflater().block(damaged, 1 << 16).length <= 1 << 16);
    } catch (why) {
      assert.ok(why instanceof Violation, String(why));
    }
  }
});

test('an outbox is stored once, over lost connections', () => {
  for (let seed = 1; seed <= 500; seed += 1) {
    const below = chance(seed);
    const outbox = new Outbox();
    const stored = [-2, -1]; // of an earlier life
    let given = 0;
    assert.equal(outbox.rewind(stored.length, true), undefined);
    for (let steps = below(60); steps > 0; steps -= 1) {
      const step = below(6);
      if (step < 2) {
        outbox.add(given);
        given += 1;
      } else if (step < 4) {
        const sent = outbox.next();
        if (sent !== undefined && step === 2) stored.push(sent);
        else assert.equal(outbox.rewind(stored.length, true), undefined); // it is lost
      } else if (step === 4) assert.ok(outbox.stored(stored.length));
      else assert.equal(outbox.rewind(stored.length, true), undefined);
      assert.equal(outbox.confirmed + outbox.size, given);
    }
    for (let sent; (sent = outbox.next()) !== undefined;) stored.push(sent);
    assert.deepEqual(stored, Array.from({ length: given + 2 }, (_, n) => n - 2));
    assert.ok(outbox.stored(stored.length));
    assert.equal(outbox.size, 0);
    assert.ok(!outbox.stored(stored.length + 1));
  }
});

test('an outbox does not go on where it never was', () => {
  const outbox = new Outbox();
  for (let n = 0; n < 4; n += 1) outbox.add(n);
  assert.equal(outbox.rewind(10, true), undefined);
  assert.deepEqual([outbox.next(), outbox.next()], [0, 1]);
  assert.match(outbox.rewind(13, true), /another sender/);
  assert.equal(outbox.rewind(11, true), undefined);
  assert.match(outbox.rewind(10, true), /forgotten/);
});
