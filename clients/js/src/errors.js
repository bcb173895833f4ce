// Why a stream is over before its end.

export class RsioError extends Error {
  constructor(message) {
    super(message);
    this.name = new.target.name;
  }
}

/** The connection ended, or could not be opened. */
export class Disconnected extends RsioError {}

/** The publisher ended the stream with onError; the message is what it said. */
export class StreamFailed extends RsioError {}

/** The peer has said that it takes no element of so many octets; it alone is not sent. */
export class TooLarge extends RsioError {
  constructor(octets, most) {
    super(`an element of ${octets} octets; the peer takes ${most}`);
    this.octets = octets;
    this.most = most;
  }
}

/** What the gateway has of a sender is not what the sender knows to be stored. */
export class CannotResume extends RsioError {}

/**
 * Another sender has the name, and began later.  What was acknowledged is stored, the rest
 * may or may not be.
 */
export class Fenced extends CannotResume {}
