/** Reactive Streams IO: publishers and subscribers in another process. */

/** What an element is made of; it is not copied, and must not be changed once it is given. */
export type Element = string | ArrayBuffer | ArrayBufferView;

export interface Options {
  /** A gateway stores what the sender of a name sends exactly once. */
  name?: string;
  /** A secret that says that we may. */
  token?: string;
  /** For `tls://` in Node: options of `tls.connect`, such as `ca`, `cert` and `key`. */
  tls?: object;
  /** What a sender sends is compressed, if the peer allows it. */
  compress?: boolean;
  /** For `ws://` and `wss://` where there is none: a class like that of browsers. */
  WebSocket?: new (url: URL, subprotocol: string) => unknown;
  /** The largest element that is taken; by default 16 MiB. */
  elementBytes?: number;
}

/**
 * Where a peer is, and who we are there.
 *
 * It connects to nothing by itself: each subscription and each sender has a connection of
 * its own, so a slow one holds back no other.  It does not change, and may be shared.
 */
export class Rsio {
  private constructor();

  /**
   * `where` is `tcp://HOST:PORT`, `tls://HOST:PORT`, `ws://HOST:PORT/PATH` or `wss://…`.
   * TypeError if it is not.
   */
  static at(where: string, options?: Options): Rsio;

  /**
   * Sends to a peer that subscribes to `publisher`, by default "events"; connects at once.
   * With `size`, all elements have so many octets, and are sent packed.
   */
  sender(publisher?: string, options?: { size?: number }): Sender;

  /**
   * The elements of a publisher of the peer, which is connected to when they are asked for.
   *
   * No more than `window` elements, by default 1024, are requested and not taken.  With
   * `resume`, a lost connection is followed by another, which goes on behind what came: the
   * publisher has to be one that can, like a gateway's `events?from=…` in JSON and without
   * a filter.
   */
  subscribe(publisher: string, options?: { window?: number; resume?: boolean }): Subscription;
}

/**
 * Sends what it is given, and has it acknowledged, over lost connections.
 *
 * A gateway requests more when what it got is on disk.  What it has not acknowledged is
 * kept, and sent again on the next connection; with a name or a token each element is
 * stored exactly once.
 */
export class Sender {
  private constructor();

  /** Why nothing is sent at present; empty while the peer takes elements. */
  readonly trouble: string;

  /** How many elements were acknowledged. */
  readonly acknowledged: number;

  /** Elements that are not acknowledged, in order; some may be stored all the same. */
  unacknowledged(): Uint8Array[];

  /**
   * Waits until the peer has room for the element.  Elements are sent in the order of the
   * calls.  Rejects as `stored` does; without consequence for others with RangeError, if
   * the element has not the size that all have, and with `TooLarge`, if the peer has said
   * that it takes none so large.
   */
  send(element: Element): Promise<void>;

  /** Sends each, and waits until they are acknowledged. */
  sendAll(elements: AsyncIterable<Element> | Iterable<Element>): Promise<void>;

  /**
   * Waits until all that was given so far is acknowledged.
   *
   * Rejects with `Fenced` if another sender of this name began later, with `CannotResume`
   * if the gateway does not have what it had, with what `abort` was called with.
   */
  stored(): Promise<void>;

  /** No more is given: waits until all is acknowledged, completes the stream, and leaves. */
  close(): Promise<void>;

  /** Leaves at once; what is not acknowledged may or may not be stored. */
  abort(why?: unknown): void;

  /** To pipe into: its end closes the sender, and waits until all is acknowledged. */
  writable(): WritableStream<Element>;
}

/**
 * Elements of a publisher, requested as they are taken.
 *
 * It ends when the publisher completes.  It throws `StreamFailed` with what the publisher
 * said, and `Disconnected` when the connection is lost, unless it resumes.  A loop that is
 * left cancels it.
 */
export class Subscription implements AsyncIterable<Uint8Array> {
  private constructor();

  /** Why nothing comes at present; empty while the publisher is subscribed to. */
  readonly trouble: string;

  /** Octets of every element; 0 if they differ, undefined while it is not known. */
  readonly size: number | undefined;

  [Symbol.asyncIterator](): AsyncIterableIterator<Uint8Array>;

  /** The elements in arrays of as many as have arrived: faster than one by one. */
  batches(): AsyncGenerator<Uint8Array[], void, void>;

  /** A stream of the elements, which are requested as it is read. */
  readable(): ReadableStream<Uint8Array>;

  /** No more is wanted: loops end. */
  cancel(): void;
}

export class RsioError extends Error {}

/** The connection ended, or could not be opened. */
export class Disconnected extends RsioError {}

/** The publisher ended the stream with onError; the message is what it said. */
export class StreamFailed extends RsioError {}

/** The peer has said that it takes no element of so many octets: it alone is not sent. */
export class TooLarge extends RsioError {
  readonly octets: number;
  /** The most octets that the peer takes. */
  readonly most: number;
}

/** What the gateway has of a sender is not what the sender knows to be stored. */
export class CannotResume extends RsioError {}

/** Another sender has the name, and began later; it is over with this one. */
export class Fenced extends CannotResume {}
