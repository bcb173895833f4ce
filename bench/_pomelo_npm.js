// The npm package pomelo as an echo server: `node FILE BASE PORT HEARTBEAT [SERVICE]`.
//
// One frontend server with pomelo's own components: hybridconnector, sessions, filters,
// handlers, direct push scheduler.  Left out is the monitor, which would look for a
// master.  With the port of a service its handler answers what that does, asked over HTTP on
// 16 connections that are kept (_pomelo_service.js).  Prints a line once it listens, and ends with its standard input.
'use strict';

process.stdin.resume().on('end', () => process.exit());

const fs = require('fs');
const path = require('path');
const [base, port, heartbeat, service] = process.argv.slice(2);

const files = {
  'config/master.json': { development: { id: 'master', host: '127.0.0.1', port: 1 } },
  'config/servers.json': { development: {} },
  'config/log4js.json': { appenders: [], levels: { '[all]': 'ERROR' } },
};
for (const [name, content] of Object.entries(files)) {
  fs.mkdirSync(path.dirname(path.join(base, name)), { recursive: true });
  fs.writeFileSync(path.join(base, name), JSON.stringify(content));
}
const handlers = path.join(base, 'app/servers/area/handler');
fs.mkdirSync(handlers, { recursive: true });
fs.writeFileSync(path.join(handlers, 'player.js'), `
  const http = require('http');
  const agent = new http.Agent({ keepAlive: true, maxSockets: 16 });
  const to = { port: ${service || 0}, host: '127.0.0.1', method: 'POST', agent };
  function ask(msg, session, next) {
    const request = http.request(to, (response) => {
      const pieces = [];
      response.on('data', (piece) => pieces.push(piece));
      response.on('end', () => next(null, JSON.parse(Buffer.concat(pieces)).answers[0]));
    });
    request.end(JSON.stringify({ requests: [{ route: 'area.player.move', body: msg }] }));
  }
  module.exports = () => ({
    move: ${service ? 'ask' : '(msg, session, next) => next(null, msg)'},
    note: (msg, session, next) => next(null),
  });
`);

// createApp reads its server's settings from the command line
process.argv = [
  process.argv[0], __filename, 'id=area-1', 'serverType=area', 'frontend=true',
  'host=127.0.0.1', `clientPort=${port}`, 'env=development',
];
const pomelo = require('pomelo');

// It hands an object to Socket.write as the encoding, which Node refuses since 10.
require('pomelo/lib/connectors/hybrid/tcpsocket').prototype.send =
  function send(data, options, done) { this._socket.write(data, done); };

const app = pomelo.createApp({ base });
const options = {
  connector: pomelo.connectors.hybridconnector, setNoDelay: true, distinctHost: true,
};
if (Number(heartbeat)) options.heartbeat = Number(heartbeat);
app.set('connectorConfig', options);
app.load('__monitor__', { name: '__monitor__' });
app.start((error) => {
  if (error) throw error;
  const { listeningServer } = app.components.__connector__.connector;
  const ready = () => console.log('listening');
  if (listeningServer.listening) ready(); else listeningServer.once('listening', ready);
});
