// One end of an RS.io connection: hello, goodbye, extensions, and what may come when.
//
// `Published` and `Consumed` (streams.js) have the streams.  A side is made of hooks:
//
//   server       whether the other side opened the connection
//   extensions   those that our hello lists
//   publish(name, offset)   a source (sources.js), or throws `Refused`
//   opened(connection)      both hellos were exchanged; for a client
//   token(connection, message), announced(connection, message)   for a server
//   closed(connection, reason)
'use strict';

const zlib = require('zlib');
const { Decoder, EXTENSIONS, LIMITS, Violation, encode } = require('./wire.js');
const { Consuming, Publishing } = require('./streams.js');

const GOODBYE_MS = 5000;
const SYNC_FLUSH = Buffer.from([0, 0, 0xff, 0xff]);
const SUBSCRIBES = new Set(['subscribe', 'subscribeFrom', 'announce']);
const MOVES = new Set(['onNext', 'onNextPart', 'onNextLastPart']);

class Connection {
  constructor(socket, side) {
    this.socket = socket;
    this.side = side;
    this.used = new Set();
    this.greeted = false;
    this.leaving = false;
    this.closed = false;
    this.awaited = false; // the token
    this.control = 0;
    this.publishing = new Publishing(this);
    this.consuming = new Consuming(this);
    this.decoder = new Decoder((id) => this.consuming.sizeOf(id));
    socket.setNoDelay(true);
    socket.on('error', () => {});
    socket.on('drain', () => this.publishing.pump());
    socket.on('close', () => this.end('the transport is lost'));
    this.listen();
    if (!side.server) this.send({ type: 'clientHello', version: 0, extensions: side.extensions });
  }

  send(message) {
    if (!this.closed) this.socket.write(encode(message));
  }

  // -- the end

  goodbye(reason = '') {
    if (this.leaving || this.closed) return;
    this.leaving = true;
    this.send({ type: 'goodbye', reason });
    this.publishing.end();
    this.timer = setTimeout(() => this.hangUp('goodbye was not answered'), GOODBYE_MS);
  }

  violated(why) {
    const reason = this.used.has(5n) && !/^E\d+ /.test(why) ? `E400 ${why}` : why;
    if (!this.leaving) this.send({ type: 'goodbye', reason });
    this.hangUp(why);
  }

  hangUp(why) {
    if (this.closed) return;
    this.end(why);
    // Read what still comes, or a reset would take our last message away.
    this.socket.end();
    setTimeout(() => this.socket.destroy(), 1000).unref();
  }

  end(why) {
    if (this.closed) return;
    this.closed = true;
    clearTimeout(this.timer);
    clearTimeout(this.patience);
    this.publishing.end();
    if (this.side.closed) this.side.closed(this, why);
  }

  // -- what arrives

  listen() {
    if (this.side.server) {
      const late = () => this.violated('no hello, or no token, in time');
      this.patience = setTimeout(late, this.side.helloMs || 10000);
    }
    let taken = Promise.resolve();
    this.socket.on('data', (data) => {
      taken = taken.then(() => this.arrived(data));
    });
    this.socket.on('end', () => {
      taken = taken.then(() => this.hangUp('the peer has closed'));
    });
  }

  async arrived(data) {
    if (this.closed) return;
    this.decoder.feed(data);
    this.socket.pause(); // a block takes a while
    try {
      await this.take(this.decoder);
      this.consuming.grant();
      this.publishing.pump();
    } catch (why) {
      if (!(why instanceof Violation)) throw why;
      this.violated(why.message);
    } finally {
      this.socket.resume();
    }
  }

  async take(decoder) {
    for (let message; !this.closed && (message = decoder.next()) !== undefined;) {
      if (message.type !== 'block') {
        this.received(message);
        continue;
      }
      this.mayCome(message);
      const inner = new Decoder((id) => this.consuming.sizeOf(id));
      inner.feed(await this.inflate(message.data));
      for (let one; !this.closed && (one = inner.next()) !== undefined;) {
        if (one.type === 'block') throw new Violation('a block in a block');
        this.received(one);
      }
      if (inner.unread) throw new Violation('a message that is cut by the end of a block');
    }
  }

  received(message) {
    this.mayCome(message);
    this.control += MOVES.has(message.type) ? 0 : 1;
    if (this.control > LIMITS.control + this.publishing.sent) {
      throw new Violation('too many messages that move no element');
    }
    const take = this[`take_${message.type}`];
    if (take) take.call(this, message);
    else if (message.type.startsWith('on')) this.consuming.take(message);
    else this.publishing.take(message);
  }

  mayCome(message) {
    const { type } = message;
    const hello = this.side.server ? 'clientHello' : 'serverHello';
    if (type.endsWith('Hello') && (type !== hello || this.greeted)) {
      throw new Violation('a hello at a time that is not for it');
    }
    if (!this.greeted && type !== hello && type !== 'goodbye') {
      throw new Violation('hello comes first');
    }
    const extension = EXTENSIONS[type];
    if (extension && !this.used.has(BigInt(extension))) {
      throw new Violation(`${type} without extension ${extension}`);
    }
    if (this.awaited && SUBSCRIBES.has(type)) {
      throw new Violation('E401 the token comes first');
    }
  }

  greet(hello) {
    if (hello.version !== 0) {
      throw new Violation(`unsupported version ${hello.version}; 0 only`);
    }
    this.greeted = true;
    const ours = new Set(this.side.extensions.map(BigInt));
    this.used = new Set(hello.extensions.filter((each) => ours.has(each)));
    if (!this.used.has(2n)) this.used.delete(7n);
  }

  take_clientHello(hello) {
    if (hello.version === 0) {
      this.send({ type: 'serverHello', version: 0, extensions: this.side.extensions });
    }
    this.greet(hello);
    this.awaited = this.used.has(4n);
    if (!this.awaited) this.identified(undefined);
  }

  take_serverHello(hello) {
    this.greet(hello);
    this.side.opened(this);
  }

  take_token(message) {
    if (!this.awaited) throw new Violation('a token at a time that is not for tokens');
    if (!['name', 'bearer'].includes(message.scheme)) {
      throw new Violation(`E401 a token of scheme ${message.scheme}`);
    }
    this.awaited = false;
    this.identified(message.data.toString('latin1'));
  }

  identified(name) {
    clearTimeout(this.patience);
    this.name = name;
    this.side.identified(this);
  }

  take_announce(message) {
    if (message.resumed > 1n || (message.resumed && !message.instance.length)) {
      throw new Violation('an announce that is none');
    }
    this.side.announced(this, message);
  }

  take_goodbye({ reason }) {
    if (!this.leaving) {
      this.send(this.used.has(3n) ? { type: 'goodbyeAck', message: '' }
        : { type: 'goodbye', reason: '' });
    }
    this.hangUp(reason);
  }

  take_goodbyeAck() {
    if (!this.leaving) throw new Violation('goodbyeAck without a goodbye');
    this.hangUp('');
  }

  take_ping({ data }) {
    this.send({ type: 'pong', data });
  }

  take_pong() {}

  take_compress({ algorithm }) {
    if (algorithm === 1n) {
      this.zlib = zlib.createInflate();
      this.inflated = { pieces: [], size: 0, over: false };
      this.zlib.on('data', (piece) => this.inflatedPiece(piece));
      this.zlib.on('end', () => { this.inflated.over = true; });
    }
    this.send({ type: 'compressAck', algorithm: algorithm === 1n ? 1 : 0 });
  }

  take_compressAck() {}

  inflatedPiece(piece) {
    this.inflated.size += piece.length;
    if (this.inflated.size <= LIMITS.inflated) this.inflated.pieces.push(piece);
    else this.zlib.destroy(new Violation('a block that inflates to too much'));
  }

  async inflate(data) {
    if (!this.zlib) throw new Violation('a block that nobody asked for');
    if (!data.length) return data;
    if (!data.subarray(-4).equals(SYNC_FLUSH)) throw new Violation('no flush behind a block');
    this.inflated.pieces = [];
    this.inflated.size = 0;
    await new Promise((resolve, reject) => {
      const fail = (why) => reject(why instanceof Violation ? why
        : new Violation('a block that can not be inflated'));
      this.zlib.once('error', fail);
      this.zlib.write(data, () => setImmediate(() => {
        this.zlib.removeListener('error', fail);
        resolve();
      }));
    });
    if (this.inflated.over) throw new Violation('the end of the zlib stream');
    return Buffer.concat(this.inflated.pieces);
  }
}

module.exports = { Connection };
