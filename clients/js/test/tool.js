// Sends and reads by the package, for tests with a daemon:
//
//   node test/tool.js send ADDRESS NAME COUNT          {"n":0} … ; prints how many are stored
//   node test/tool.js pack ADDRESS NAME COUNT          the same numbers, in 8 octets each
//   node test/tool.js receive ADDRESS PUBLISHER COUNT  prints that many, over lost connections
//
// The environment's CA names a certificate to trust, and COMPRESSED asks for compression.

import { readFileSync } from 'node:fs';
import { Fenced, Rsio } from 'rsio-client';

const [role, where, what, words] = process.argv.slice(2);
const count = Number(words);
const { CA, COMPRESSED } = process.env;
const options = {
  compress: COMPRESSED !== undefined,
  tls: CA === undefined ? undefined : { ca: readFileSync(CA) },
};

function* numbers(packed) {
  for (let n = 0; n < count; n += 1) {
    if (packed) {
      const octets = new DataView(new ArrayBuffer(8));
      octets.setBigUint64(0, BigInt(n));
      yield octets;
    } else yield `{"n":${n}}`;
  }
}

async function send(packed) {
  const place = Rsio.at(where, { ...options, name: what });
  const sender = place.sender('events', { size: packed ? 8 : 0 });
  try {
    await sender.sendAll(numbers(packed));
    await sender.close();
    process.stdout.write(`${sender.acknowledged} acknowledged\n`);
  } catch (why) {
    process.stderr.write(`${why}; ${sender.acknowledged} acknowledged\n`);
    process.exitCode = why instanceof Fenced ? 3 : 1;
  }
}

async function receive() {
  const subscription = Rsio.at(where, options).subscribe(what, { window: 64, resume: true });
  let found = 0;
  for await (const element of subscription) {
    process.stdout.write(`${Buffer.from(element)}\n`);
    found += 1;
    if (found === count) break;
  }
}

await (role === 'receive' ? receive() : send(role === 'pack'));
