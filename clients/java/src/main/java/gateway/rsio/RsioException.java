package gateway.rsio;

import java.nio.ByteBuffer;

/** Why a stream is over before its end. */
public class RsioException extends RuntimeException {
    RsioException(String why) {
        super(why);
    }

    /** The connection ended, or could not be opened. */
    public static final class Disconnected extends RsioException {
        Disconnected(String why) {
            super(why);
        }
    }

    /** The publisher ended the stream with onError; the message is what it said. */
    public static final class StreamFailed extends RsioException {
        StreamFailed(String why) {
            super(why);
        }
    }

    /** The peer has said that it takes no element of so many octets; it alone is not sent. */
    public static final class TooLarge extends RsioException {
        private final transient ByteBuffer element;
        private final long most;

        TooLarge(ByteBuffer element, long most) {
            super("an element of " + element.remaining() + " octets; the peer takes " + most);
            this.element = element;
            this.most = most;
        }

        /** The element. */
        public ByteBuffer element() {
            return element;
        }

        /** The most octets that the peer takes. */
        public long most() {
            return most;
        }
    }

    /** What the gateway has of a sender is not what the sender knows to be stored. */
    public static final class CannotResume extends RsioException {
        CannotResume(String why) {
            super(why);
        }
    }

    /**
     * Another sender has the name, and began later. What was acknowledged is stored, the rest may
     * or may not be.
     */
    public static final class Fenced extends RsioException {
        Fenced(String why) {
            super(why);
        }
    }
}
