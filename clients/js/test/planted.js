// Small servers that have a fault each, for the kit, which has to notice: copies of the
// package, in one process.
//
//   node test/planted.js FOLDER …        prints their ports

import { pathToFileURL } from 'node:url';

const HELLO_MS = 1500;

// What a fault breaks beyond its connection is noticed by the kit, which hears no more.
process.on('uncaughtException', (why) => process.stderr.write(`${why.message}\n`));

for (const folder of process.argv.slice(2)) {
  const { SmallServer } = await import(pathToFileURL(`${folder}/test/small-server.js`));
  const server = await new SmallServer(HELLO_MS).listen();
  process.stdout.write(`${server.port}\n`);
}
