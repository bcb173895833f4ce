// What the registry would get.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import * as all from 'rsio-client';

const HOME = fileURLToPath(new URL('..', import.meta.url));
const read = (name) => readFileSync(`${HOME}/${name}`, 'utf8');
const about = JSON.parse(read('package.json'));
const skip = !existsSync(`${HOME}/../../docs/rsio-v0.md`) && 'only with the repository';
const sources = readdirSync(`${HOME}/src`).map((name) => `src/${name}`);

test('it has its sources, its page and nothing else', () => {
  const said = execFileSync('npm', ['pack', '--dry-run', '--json'], { cwd: HOME, encoding: 'utf8' });
  const [{ files, unpackedSize }] = JSON.parse(said);
  assert.deepEqual(
    files.map(({ path }) => path).sort(),
    ['README.md', 'package.json', ...sources].sort(),
  );
  assert.ok(unpackedSize < 100_000, `${unpackedSize} octets`);
});

test('it needs nothing at run time, and sockets in one file', () => {
  assert.equal(about.dependencies, undefined);
  for (const name of sources) {
    const needs = [...read(name).matchAll(/(?:from|import\()\s*'([^']+)'/g)].map(([, need]) => need);
    const outside = needs.filter((need) => !need.startsWith('./'));
    assert.deepEqual(outside, name === 'src/sockets.js' ? ['node:net', 'node:tls'] : [], name);
    assert.ok(!/\b(Buffer|process|require)[.(]\w/.test(read(name)), name);
  }
});

test('what it has, its types have', () => {
  const typed = [...read('src/index.d.ts').matchAll(/^export class (\w+)/gm)].map(([, name]) => name);
  assert.deepEqual(typed.sort(), Object.keys(all).sort());
});

test('its version is the protocol’s: version, edition, and a number of its own', { skip }, () => {
  const definition = read('../../docs/rsio-v0.md');
  const [, edition] = definition.match(/This is edition (\d+) of the definition of version 0/);
  assert.match(about.version, new RegExp(`^0\\.${edition}\\.\\d+$`));
  const java = read('../java/pom.xml');
  const [, other] = java.match(/<version>(0\.\d+)\.\d+<\/version>/);
  assert.ok(about.version.startsWith(`${other}.`));
});

test('it says where its sources are, and so do the other clients', { skip }, () => {
  const { url, directory } = about.repository;
  assert.equal(directory, 'clients/js');
  assert.ok(read('../../pyproject.toml').includes(`Source = "${url}"`));
  assert.ok(read('../../packages/rsio-client/pyproject.toml').includes(`Source = "${url}"`));
  assert.ok(read('../java/pom.xml').includes(`<url>${url}</url>`));
});
