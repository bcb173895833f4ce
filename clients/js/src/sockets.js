// TCP and TLS in Node.

import net from 'node:net';
import tls from 'node:tls';

/** In which nothing happens, before TCP and TLS are there. */
const CONNECT_MS = 10_000;

/** See transports.js. */
export function open(url, options, heard) {
  const host = url.hostname.replace(/^\[(.*)\]$/, '$1');
  const secured = url.protocol === 'tls:';
  const where = { host, port: Number(url.port), allowHalfOpen: true, timeout: CONNECT_MS };
  if (secured && !net.isIP(host)) where.servername = host;
  const socket = secured ? tls.connect({ ...where, ...options }) : net.connect(where);
  return new Promise((resolve, reject) => {
    socket.once(secured ? 'secureConnect' : 'connect', () => {
      socket.setTimeout(0);
      resolve(carrying(socket, heard));
    });
    socket.once('timeout', () => socket.destroy(new Error('no connection in time')));
    socket.once('error', reject);
  });
}

/** A transport of an open socket. */
export function carrying(socket, heard) {
  let trouble = 'the connection was closed';
  socket.setNoDelay(true);
  socket.on('data', (data) => heard.received(
    new Uint8Array(data.buffer, data.byteOffset, data.length),
  ));
  socket.on('drain', () => heard.drained());
  socket.on('error', (why) => { trouble = String(why); });
  socket.on('end', () => heard.lost('the peer has closed'));
  socket.on('close', () => heard.lost(trouble));
  return {
    write: (octets) => socket.write(octets),
    buffered: () => socket.writableLength,
    end: () => socket.end(),
    destroy: () => socket.destroy(),
  };
}
