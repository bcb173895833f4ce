// The vectors of the protocol's definition: a copy of tests/vectors/rsio.jsonl.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { CLOSED, OPEN } from '../src/session.js';
import { Decoder, Output } from '../src/wire.js';
import { Recorder, hex, octets } from './recorder.js';

const TEXT = readFileSync(new URL('vectors.jsonl', import.meta.url), 'utf8');
// JSON.parse would round what has more than fifteen digits.
const VECTORS = TEXT.trim().split('\n').map(
  (line) => JSON.parse(line.replace(/: (\d{16,})/g, ': "big $1"'), (_, value) => (
    typeof value === 'string' && value.startsWith('big ') ? exact(BigInt(value.slice(4))) : value
  )),
);

function exact(value) {
  return value > BigInt(Number.MAX_SAFE_INTEGER) ? value : Number(value);
}

function of(kind) {
  const found = VECTORS.filter((each) => each.kind === kind);
  assert.ok(found.length > 5, kind);
  return found;
}

function decoded(data) {
  const decoder = new Decoder(() => undefined);
  decoder.feed(data);
  const found = [];
  for (let each; (each = decoder.next()) !== undefined;) found.push(each);
  assert.equal(decoder.unread, 0, hex(data));
  return found;
}

test('each message is read as it is meant, and written as it is read', () => {
  for (const { hex: said, message: type, fields } of of('message')) {
    const [message, ...more] = decoded(octets(said));
    assert.deepEqual(more, []);
    const plain = Object.fromEntries(Object.entries(message).map(
      ([name, value]) => [name, value instanceof Uint8Array ? hex(value) : value],
    ));
    assert.deepEqual(plain, { type, ...fields }, said);
    const output = new Output();
    output.message(message);
    assert.equal(hex(output.take()), said);
  }
});

test('elements come out whole and in order, whatever they came in', () => {
  for (const { hex: said, elementSize, elements } of of('elements')) {
    for (const step of [1, 2, 10_000]) {
      const recorder = new Recorder();
      const output = new Output();
      output.message({ type: 'serverHello', version: 0, extensions: [] });
      output.message({ type: 'onSubscribe', subscriber: 1, elementSize });
      output.raw(octets(said));
      recorder.deliver(output.take(), step);
      assert.equal(recorder.session.state, OPEN, said);
      assert.deepEqual(recorder.elements.map(hex), elements, said);
    }
  }
});

test('numbers are read in any length, and written in the shortest', () => {
  for (const { hex: said, value, meaning } of of('varint')) {
    assert.equal(decoded(octets(`1101${said}`))[0].demand, value, said);
    if (!meaning.includes('shortest')) continue;
    const output = new Output();
    output.varint(value);
    assert.equal(hex(output.take()), said);
  }
});

test('what must not be said is answered with goodbye, however it is cut', () => {
  for (const { hex: said, meaning } of of('refused')) {
    for (const step of [1, 2, 10_000]) {
      const recorder = new Recorder({ server: true });
      recorder.deliver(octets(said), step);
      assert.equal(recorder.session.state, CLOSED, `${said}: ${meaning}`);
      const last = decoded(recorder.session.fill()).at(-1);
      assert.equal(last.type, 'goodbye', said);
      assert.notEqual(last.reason, '', said);
    }
  }
});
