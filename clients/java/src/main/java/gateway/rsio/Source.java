package gateway.rsio;

import java.nio.ByteBuffer;

/** What a stream that we serve is made of. Its methods are called one at a time. */
interface Source {
    /** Octets of every element; 0 if they differ. */
    default int size() {
        return 0;
    }

    /** The next element; null if there is none now. */
    ByteBuffer next();

    /** Whether no element will come any more. */
    boolean over();

    /** How it is over: null for onComplete. */
    default String error() {
        return null;
    }

    /** The subscriber requested `more`, the first demand included. */
    default void requested(long more) {}

    /** The subscriber has the first `offset` elements safe. */
    default void stored(long offset) {}

    /** The stream is over: it completed, or was cancelled, or its connection has ended. */
    default void ended() {}

    /** A subscription that is answered with onError. */
    final class Refused extends Exception {
        Refused(String why) {
            super(why, null, false, false);
        }
    }
}
