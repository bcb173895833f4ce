// Opens what carries octets: TCP and TLS where there are sockets, WebSocket everywhere.

const SUBPROTOCOL = 'rsio.v0';
const DRAIN_MS = 5;
const WEB_SOCKET_OPEN = 1;

/** Throws TypeError if it is no address. */
export function checked(where) {
  let url;
  try {
    url = new URL(where);
  } catch {
    url = { protocol: '' };
  }
  const plain = url.protocol === 'tcp:' || url.protocol === 'tls:';
  if (!url.hostname || !(url.protocol === 'ws:' || url.protocol === 'wss:' || (plain && url.port))) {
    throw new TypeError(
      `${where} is not tcp://HOST:PORT, tls://HOST:PORT, ws://HOST:PORT/PATH or wss://…`,
    );
  }
  return url;
}

/**
 * Connects; `heard` is told what happens from then on.
 *
 * Gives a transport, or throws why there is none.
 */
export async function open({ url, tls, WebSocket }, heard) {
  if (url.protocol === 'ws:' || url.protocol === 'wss:') {
    return openWebSocket(url, WebSocket, heard);
  }
  // Where there are no sockets, nobody asks for this module.
  const sockets = await import('./sockets.js');
  return sockets.open(url, tls, heard);
}

function openWebSocket(url, WebSocket, heard) {
  if (!WebSocket) {
    throw new Error('there is no WebSocket here: Node has it from version 22 on; before, give '
      + 'that of another package: Rsio.at(where, { WebSocket })');
  }
  const socket = new WebSocket(url, SUBPROTOCOL);
  socket.binaryType = 'arraybuffer';
  let draining;
  const transport = {
    write(octets) {
      if (socket.readyState !== WEB_SOCKET_OPEN) return;
      socket.send(octets);
      drain();
    },
    buffered: () => socket.bufferedAmount,
    end: () => socket.close(),
    destroy: () => socket.close(),
  };
  function drain() { // nothing tells when it has been sent
    if (draining || !socket.bufferedAmount) return;
    draining = setTimeout(() => {
      draining = undefined;
      heard.drained();
      drain();
    }, DRAIN_MS);
  }
  return new Promise((resolve, reject) => {
    socket.onopen = () => resolve(transport);
    socket.onmessage = ({ data }) => {
      if (typeof data === 'string') heard.lost('a text message');
      else heard.received(new Uint8Array(data));
    };
    socket.onclose = ({ code, reason }) => {
      clearTimeout(draining);
      const why = `the WebSocket was closed: ${code} ${reason}`.trim();
      reject(new Error(why));
      heard.lost(why);
    };
  });
}
