// A game's service, which answers each request 200: `node FILE`.
//
// Takes posts as the gateway makes them, {"requests": […]}, and answers {"answers": […]}.
// Prints its port, and ends with its standard input.
'use strict';

process.stdin.resume().on('end', () => process.exit());

const server = require('http').createServer((request, response) => {
  const pieces = [];
  request.on('data', (piece) => pieces.push(piece));
  request.on('end', () => {
    const { requests } = JSON.parse(Buffer.concat(pieces));
    const body = JSON.stringify({ answers: requests.map(() => ({ code: 200 })) });
    response.writeHead(200, {
      'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(body),
    });
    response.end(body);
  });
});
server.keepAliveTimeout = 60_000;
server.listen(0, '127.0.0.1', () => console.log(server.address().port));
