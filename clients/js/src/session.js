// One end of a conversation: hello, token, goodbye, blocks, and what may come when.
//
// It knows no socket and no timer: `received` takes octets, `fill` gives what is to be
// written.  A side, whose end it is, has
//
//   extensions             those that its hello lists
//   opened()               a client: both hellos came; a server: it knows who the client is
//   publish(name, offset)  a source (serving.js), or throws `Refused`
//   announced(message)     a server: the client says which life of a publisher it is

import { Consuming } from './consuming.js';
import { Deflater } from './deflate.js';
import { Inflater } from './inflate.js';
import { Serving } from './serving.js';
import { Decoder, EXTENSIONS, LIMITS, Output, Violation, octetsOf } from './wire.js';

const FULL_BYTES = 1 << 17;
const PLAIN_BYTES = 1 << 16;
const SYNC_FLUSH = [0, 0, 0xff, 0xff];
const SECOND_MS = 1000;
const TEXT = new TextDecoder();
const ELEMENTS = new Set(['onNext', 'onNextPacked', 'onNextPart', 'onNextLastPart']);
const SUBSCRIBES = new Set(['subscribe', 'subscribeFrom', 'announce']);

/** What a side of a conversation is at. */
export const GREETING = 'greeting'; // the peer's hello has not come
export const UNIDENTIFIED = 'unidentified'; // a server waits for the token
export const OPEN = 'open';
export const LEAVING = 'leaving'; // goodbye is sent
export const CLOSED = 'closed';

export class Session {
  state = GREETING;

  /** Why it is closed. */
  why = '';

  /** A server: the token's text. */
  identity = undefined;

  consuming = new Consuming(this);

  serving = new Serving(this);

  #server;

  #now;

  #began;

  #decoder = new Decoder((id) => this.consuming.sizeOf(id));

  #control = [];

  #output = new Output();

  #plain = new Output();

  #used = new Set();

  #greeted = false;

  #bearer = false;

  #controlled = 0;

  #elements = 0;

  #inflater;

  #deflater;

  constructor(side, { server = false, elementBytes = LIMITS.elementBytes,
    now = () => performance.now() } = {}) {
    this.side = side;
    this.elementBytes = elementBytes;
    this.#server = server;
    this.#now = now;
    this.#began = now();
    if (!server) this.#hello('clientHello');
  }

  uses(extension) {
    return this.#used.has(extension);
  }

  // What is to be sent

  #hello(type) {
    this.#control.push({ type, version: 0, extensions: this.side.extensions });
  }

  /** Nothing follows goodbye. */
  say(message) {
    if (this.state !== LEAVING && this.state !== CLOSED) this.#control.push(message);
  }

  /** Asks to send blocks, which begin when the peer allows it. */
  compress() {
    this.say({ type: 'compress', algorithm: 1 });
  }

  goodbye(reason = '') {
    if (this.state === LEAVING || this.state === CLOSED) return;
    this.say({ type: 'goodbye', reason });
    this.state = LEAVING;
    this.serving.end();
    this.consuming.end('we have said goodbye');
  }

  /** Ends the conversation, without waiting for an answer. */
  violated(why) {
    const reason = this.uses(5) && !/^E\d+ /.test(why) ? `E400 ${why}` : why;
    this.say({ type: 'goodbye', reason });
    this.#end(reason);
  }

  /** The transport has ended. */
  lost(why) {
    this.#end(why);
  }

  #end(why) {
    if (this.state === CLOSED) return;
    this.state = CLOSED;
    this.why = why;
    this.serving.end();
    this.consuming.end(why);
  }

  /** What is to be written now; no octets if there is nothing. */
  fill() {
    const output = this.#output;
    this.consuming.ask();
    for (const each of this.#control) output.message(each);
    this.#control = [];
    if (this.state === OPEN || this.state === UNIDENTIFIED) {
      if (this.#deflater) {
        this.serving.fill(this.#plain, PLAIN_BYTES);
        if (this.#plain.size) {
          output.message({ type: 'block', data: this.#deflater.block(this.#plain.take()) });
        }
      } else this.serving.fill(output, FULL_BYTES);
    }
    // A stream that ended may have had something to say.
    for (const each of this.#control) output.message(each);
    this.#control = [];
    return output.take();
  }

  // What arrives

  received(octets) {
    this.#decoder.feed(octets);
    try {
      for (let each; this.state !== CLOSED && (each = this.#decoder.next()) !== undefined;) {
        this.#mayCome(each.type);
        if (each.type === 'block') this.#block(each.data);
        else this.#take(each);
      }
    } catch (why) {
      if (!(why instanceof Violation)) throw why;
      this.violated(why.message);
    }
  }

  /** Elements went either way: each is followed by stored and request. */
  moved(count) {
    this.#elements += count;
  }

  /** Counts a message that moves no element. */
  control() {
    this.#controlled += 1;
    const allowed = LIMITS.controlMessages + 2 * this.#elements;
    if (this.#controlled <= allowed) return;
    const seconds = (this.#now() - this.#began) / SECOND_MS;
    if (this.#controlled > allowed + seconds * LIMITS.controlMessagesPerSecond) {
      throw new Violation('too many messages that move no element');
    }
  }

  #mayCome(type) {
    const hello = type === (this.#server ? 'clientHello' : 'serverHello');
    if (type.endsWith('Hello') && (!hello || this.#greeted)) {
      throw new Violation('a second hello, or one of the other side');
    }
    if (!this.#greeted && !hello && type !== 'goodbye') throw new Violation('hello comes first');
    const extension = EXTENSIONS[type];
    if (extension && !this.uses(extension)) {
      throw new Violation(`${type} without extension ${extension}`);
    }
    if (this.state === UNIDENTIFIED && SUBSCRIBES.has(type)) {
      throw new Violation('E401 the token comes first');
    }
  }

  #take(message) {
    if (ELEMENTS.has(message.type)) {
      this.consuming.take(message);
      return;
    }
    this.control();
    switch (message.type) {
      case 'clientHello': case 'serverHello': this.#greet(message); break;
      case 'goodbye':
        this.say(this.uses(3) ? { type: 'goodbyeAck', message: '' }
          : { type: 'goodbye', reason: '' });
        this.#end(message.reason);
        break;
      case 'goodbyeAck':
        if (this.state !== LEAVING) throw new Violation('goodbyeAck without a goodbye');
        this.#end(message.message);
        break;
      case 'onSubscribe': case 'onComplete': case 'onError': this.consuming.take(message); break;
      case 'ping': this.say({ type: 'pong', data: message.data }); break;
      case 'pong': break;
      case 'token': this.#token(message); break;
      case 'compress': this.#compressed(message.algorithm); break;
      case 'compressAck':
        if (message.algorithm === 1) this.#deflater = new Deflater();
        break;
      case 'announce':
        if (message.resumed > 1 || (message.resumed && !message.instance.length)) {
          throw new Violation('an announce that is none');
        }
        if (!this.#server) throw new Violation('announce to a client');
        this.side.announced(message);
        break;
      case 'limits': this.serving.told(message.elementBytes); break;
      default: if (this.state !== LEAVING) this.serving.take(message);
    }
  }

  #greet({ version, extensions }) {
    if (version !== 0) throw new Violation(`unsupported version ${version}; 0 only`);
    if (this.#server) this.#hello('serverHello');
    this.#greeted = true;
    this.#used = new Set(extensions.filter((each) => this.side.extensions.includes(each)));
    if (!this.uses(2)) this.#used.delete(7);
    if (this.state === LEAVING) return;
    this.state = this.#server && this.uses(4) ? UNIDENTIFIED : OPEN;
    if (this.state === OPEN) this.side.opened();
  }

  #token({ scheme, data }) {
    const second = this.#bearer && this.uses(7) && scheme === 'name';
    if (this.state !== UNIDENTIFIED && !second) {
      throw new Violation('a token at a time that is not for tokens');
    }
    if (scheme !== 'name' && scheme !== 'bearer') {
      throw new Violation(`E401 a token of scheme ${scheme}`);
    }
    this.#bearer = scheme === 'bearer';
    const said = TEXT.decode(data);
    this.identity = second ? `${this.identity} ${said}` : said;
    if (second) return;
    this.state = OPEN;
    this.side.opened();
  }

  #compressed(algorithm) {
    if (algorithm === 1) this.#inflater = new Inflater();
    this.say({ type: 'compressAck', algorithm: algorithm === 1 ? 1 : 0 });
  }

  #block(data) {
    if (!this.#inflater) throw new Violation('a block that nobody asked for');
    this.control();
    if (!data.length) return;
    if (SYNC_FLUSH.some((octet, n) => data[data.length - SYNC_FLUSH.length + n] !== octet)) {
      throw new Violation('no flush behind a block');
    }
    const inner = new Decoder((id) => this.consuming.sizeOf(id));
    inner.feed(this.#inflater.block(data, LIMITS.inflatedBytes));
    for (let each; this.state !== CLOSED && (each = inner.next()) !== undefined;) {
      this.#mayCome(each.type);
      if (each.type === 'block') throw new Violation('a block in a block');
      this.#take(each);
    }
    if (this.state !== CLOSED && inner.unread) {
      throw new Violation('a message that is cut by the end of a block');
    }
  }
}

/** Both hellos were exchanged: says who a client is. */
export function identify(session, { token, name }) {
  if (!session.uses(4)) return;
  const say = (scheme, text) => session.say({ type: 'token', scheme, data: octetsOf(text) });
  if (token !== undefined) say('bearer', token);
  if (name !== undefined && (token === undefined || session.uses(7))) say('name', name);
}
