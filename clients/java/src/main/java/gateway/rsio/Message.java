package gateway.rsio;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;

/** One message; only the fields of its type mean something. */
final class Message {
    static final long[] NONE = {};
    private static final ByteBuffer NO_DATA = ByteBuffer.allocate(0);

    final Type type;
    long subscriber;
    /** A version, demand, elementSize, algorithm, count, or whether a life has resumed. */
    long number;
    /** An offset, or the Id of a split element. */
    long offset;
    /** A publisher, scheme, reason or error. */
    String text = "";
    long[] extensions = NONE;
    /** Octets: of an element, of a part, of all elements of a pack one behind the other. */
    ByteBuffer data = NO_DATA;

    Message(Type type) {
        this.type = type;
    }

    static Message of(Type type, long subscriber) {
        Message made = new Message(type);
        made.subscriber = subscriber;
        return made;
    }

    static Message text(Type type, long subscriber, String text) {
        Message made = of(type, subscriber);
        made.text = text;
        return made;
    }

    static Message number(Type type, long subscriber, long number) {
        Message made = of(type, subscriber);
        made.number = number;
        return made;
    }

    static Message token(String scheme, String data) {
        Message made = text(Type.TOKEN, 0, scheme);
        made.data = ByteBuffer.wrap(data.getBytes(StandardCharsets.UTF_8));
        return made;
    }
}
