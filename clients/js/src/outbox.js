// Elements to publish, kept until the subscriber has them safe; one life of a sender.
//
// What was sent on one connection and not confirmed is sent again on the next.  A gateway
// that knows our name says behind which element it goes on, and so has each once.

const INSTANCE_BYTES = 8;
const COMPACT_ELEMENTS = 1 << 10;

/** What no other life has; it is no secret. */
function life() {
  const octets = new Uint8Array(INSTANCE_BYTES);
  // Node 18 has no global `crypto`.
  return globalThis.crypto?.getRandomValues(octets) ?? octets.map(() => Math.random() * 256);
}

export class Outbox {
  /** Of this life; empty once a gateway that does not ask for it placed us. */
  instance = life();

  /** A gateway that was told of the instance has asked us to go on. */
  resumed = false;

  /** How many elements are safe. */
  confirmed = 0;

  /** How many elements of this name the subscriber had before the first of these. */
  #first = 0;

  #placed = false;

  /** How many are safe or on their way. */
  #sent = 0;

  /** How many were sent on earlier streams. */
  #reached = 0;

  /** The first that is not confirmed is at the head. */
  #elements = [];

  #head = 0;

  /** How many elements are not confirmed. */
  get size() {
    return this.#elements.length - this.#head;
  }

  get unsent() {
    return this.confirmed + this.size - this.#sent;
  }

  add(element) {
    this.#elements.push(element);
  }

  /** The next element to send; undefined if there is none. */
  next() {
    if (!this.unsent) return undefined;
    this.#sent += 1;
    return this.#elements[this.#head + this.#sent - 1 - this.confirmed];
  }

  #confirm(number) {
    const more = Math.min(number - this.confirmed, this.size);
    if (more <= 0) return;
    this.#elements.fill(undefined, this.#head, this.#head + more);
    this.#head += more;
    this.confirmed += more;
    this.#sent = Math.max(this.#sent, this.confirmed);
    if (this.#head > COMPACT_ELEMENTS && 2 * this.#head > this.#elements.length) {
      this.#elements.splice(0, this.#head);
      this.#head = 0;
    }
  }

  /** Of a stream that began behind `base` elements, the first `count` sent on it are safe. */
  demanded(base, count) {
    this.#confirm(Math.min(base + count, this.#sent));
  }

  /** The subscriber has the publisher's first `offset` elements safe; whether it can be so. */
  stored(offset) {
    return this.storedOfStream(-this.#first, offset);
  }

  /** As `stored`, counted from the beginning of a stream. */
  storedOfStream(base, count) {
    if (typeof count === 'bigint' || base + count > this.#sent) return false;
    this.#confirm(base + count);
    return true;
  }

  /**
   * A new stream begins; with an offset the subscriber says how many elements it has.
   * `announced` says whether it was told the instance.
   *
   * Gives why it can not go on there, or undefined.
   */
  rewind(offset, announced) {
    const before = Math.max(this.#reached, this.#sent);
    if (offset !== undefined) {
      if (!this.#placed) {
        this.#placed = true;
        this.#first = offset - this.confirmed;
      }
      const here = offset - this.#first;
      if (here < this.confirmed || here > before) {
        const who = here < this.confirmed
          ? 'this gateway has forgotten the name, or is not the one before'
          : 'another sender has this name';
        return `asked to go on behind ${here} elements, ${this.confirmed} to ${before} are `
          + `possible: ${who}`;
      }
      this.#confirm(here);
      this.resumed = announced && this.instance.length > 0;
      if (!announced) this.instance = new Uint8Array(0);
    }
    this.#reached = before;
    this.#sent = this.confirmed;
    return undefined;
  }

  /** The octets of the largest element that is not confirmed. */
  get largest() {
    return this.unconfirmed().reduce((most, { length }) => Math.max(most, length), 0);
  }

  /** What is not confirmed, in order. */
  unconfirmed() {
    return this.#elements.slice(this.#head);
  }
}
