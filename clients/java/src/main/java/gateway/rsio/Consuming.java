package gateway.rsio;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** The streams of a connection that we subscribed to: their demand, and what arrives of them. */
final class Consuming {
    /** Who gets the elements of a stream. */
    interface Consumer {
        void element(ByteBuffer element);

        /** The stream is over: with onComplete if `error` is null. Not called after a cancel. */
        void ended(String error);
    }

    private static final class Parts {
        final List<ByteBuffer> pieces = new ArrayList<>();
        int size;
    }

    static final class Consumed {
        final long id;
        final String publisher;
        private final Consumer consumer;
        private int size = Decoder.UNKNOWN;
        private long room;
        private long asked;
        /** Elements that the peer counts: before this stream, and those that came of it. */
        private long arrived;
        private boolean dropped;
        private final Map<Long, Parts> parts = new HashMap<>();

        private Consumed(long id, String publisher, Consumer consumer) {
            this.id = id;
            this.publisher = publisher;
            this.consumer = consumer;
        }

        boolean dropped() {
            return dropped;
        }
    }

    private final Session session;
    private final Map<Long, Consumed> streams = new HashMap<>();
    private final Map<Long, Consumed> cancelled = new LinkedHashMap<>();
    private final List<Consumed> asking = new ArrayList<>();
    /** The stream that was looked for last. */
    private Consumed latest;
    private long nextId = 1;
    private int unfinished;
    private long held;
    private boolean overran;
    /** The peer knows how large an element may be. */
    private boolean told;

    Consuming(Session session) {
        this.session = session;
    }

    private Consumed stream(long id) {
        if (latest == null || latest.id != id) {
            latest = looked(id);
        }
        return latest;
    }

    private Consumed looked(long id) {
        Consumed found = streams.get(id);
        return found != null ? found : cancelled.get(id);
    }

    /** For the decoder. */
    long sizeOf(long id) {
        Consumed stream = stream(id);
        return stream == null ? Decoder.UNKNOWN : stream.size;
    }

    /** Subscribes; behind the first `offset` elements if that is not {@link Session#NO_OFFSET}. */
    Consumed subscribe(String publisher, long demand, long offset, Consumer consumer) {
        if (session.uses(8) && !told) {
            told = true;
            session.say(Message.number(Type.LIMITS, 0, session.limits.elementBytes()));
        }
        Consumed stream = new Consumed(nextId++, publisher, consumer);
        stream.room = demand;
        stream.arrived = Math.max(0, offset);
        streams.put(stream.id, stream);
        boolean resumes = offset != Session.NO_OFFSET;
        Message message = Message.text(
                resumes ? Type.SUBSCRIBE_FROM : Type.SUBSCRIBE, stream.id, publisher);
        message.number = demand;
        message.offset = offset;
        session.say(message);
        return stream;
    }

    /** Requests `more`; what is requested before the next write is one message. */
    void request(Consumed stream, long more) {
        if (stream.dropped) {
            return;
        }
        if (stream.asked == 0) {
            asking.add(stream);
        }
        stream.asked = Session.sum(stream.asked, more);
        stream.room = Session.sum(stream.room, more);
    }

    /** Says what was requested since the last write. */
    void ask() {
        for (Consumed stream : asking) {
            if (!stream.dropped) {
                session.say(Message.number(Type.REQUEST, stream.id, stream.asked));
            }
            stream.asked = 0;
        }
        asking.clear();
    }

    void stored(Consumed stream, long offset) {
        Message message = Message.of(Type.STORED, stream.id);
        message.offset = offset;
        session.say(message);
    }

    void cancel(Consumed stream) {
        if (stream.dropped) {
            return;
        }
        stream.dropped = true;
        forgetParts(stream);
        streams.remove(stream.id);
        cancelled.put(stream.id, stream);
        latest = null;
        if (cancelled.size() > Limits.REMEMBERED) {
            cancelled.remove(cancelled.keySet().iterator().next());
        }
        session.say(Message.of(Type.CANCEL, stream.id));
    }

    /** Streams that are subscribed and not over. */
    List<Consumed> live() {
        return List.copyOf(streams.values());
    }

    /** The connection is over, or about to be: nothing of what still comes is given on. */
    void end(String why) {
        for (Consumed stream : live()) {
            streams.remove(stream.id);
            cancelled.put(stream.id, stream);
            stream.dropped = true;
            stream.consumer.ended(why);
        }
    }

    void take(Message message) throws Violation {
        Consumed stream = stream(message.subscriber);
        if (stream == null) {
            throw new Violation("a signal for a stream that nobody subscribed");
        }
        if (message.type == Type.ON_SUBSCRIBE) {
            if (stream.size != Decoder.UNKNOWN) {
                cancel(stream);
                throw new Violation("a second onSubscribe (2.5)");
            }
            stream.size = (int) message.number;
            if (stream.size > session.limits.elementBytes()) {
                tooLarge(stream, stream.size);
            }
            return;
        }
        if (stream.size == Decoder.UNKNOWN) {
            throw new Violation("a signal before onSubscribe (1.9)");
        }
        switch (message.type) {
            case ON_COMPLETE -> ended(stream, null);
            case ON_ERROR -> ended(stream, message.text);
            case ON_NEXT -> {
                if (charge(stream, 1)) {
                    element(stream, message.data);
                }
            }
            case ON_NEXT_PACKED -> packed(stream, (int) message.number, message.data);
            default -> part(stream, message, message.type == Type.ON_NEXT_LAST_PART);
        }
    }

    private void ended(Consumed stream, String error) {
        forgetParts(stream);
        streams.remove(stream.id);
        cancelled.remove(stream.id);
        latest = null;
        if (!stream.dropped) {
            stream.consumer.ended(error);
        }
        stream.dropped = true;
    }

    private void packed(Consumed stream, int count, ByteBuffer octets) throws Violation {
        if (count == 0) {
            session.control();
        } else if (charge(stream, count)) {
            for (int n = 0; n < count; n++) {
                element(stream, octets.slice(n * stream.size, stream.size));
            }
        }
    }

    /** Takes the demand of elements that begin; whether they are to be taken. */
    private boolean charge(Consumed stream, int count) throws Violation {
        if (stream.dropped) {
            stream.room = Math.max(stream.room - count, -1);
            if (stream.room < 0) {
                session.control();
            }
            return false;
        }
        if (stream.room < count) {
            if (overran) {
                throw new Violation("more elements than requested, again (1.1)");
            }
            overran = true;
            refuse(stream, "more elements than requested");
            return false;
        }
        if (stream.room != Long.MAX_VALUE) {
            stream.room -= count;
        }
        session.moved();
        return true;
    }

    private void part(Consumed stream, Message message, boolean last) throws Violation {
        Parts joined = stream.parts.get(message.offset);
        if (joined == null) {
            if (!charge(stream, 1)) {
                return;
            }
            joined = new Parts();
            stream.parts.put(message.offset, joined);
            unfinished++;
        }
        joined.pieces.add(message.data);
        joined.size += message.data.remaining();
        held += message.data.remaining();
        if (stream.size > 0
                && (joined.size > stream.size || last && joined.size < stream.size)) {
            throw new Violation("parts that do not join to the fixed size");
        }
        if (joined.size > session.limits.elementBytes()) {
            tooLarge(stream, joined.size);
        } else if (last) {
            stream.parts.remove(message.offset);
            unfinished--;
            held -= joined.size;
            element(stream, join(joined));
        } else if (unfinished > Limits.UNFINISHED_ELEMENTS || held > Limits.UNFINISHED_BYTES) {
            refuse(stream, "too much of unfinished elements");
        }
    }

    private static ByteBuffer join(Parts parts) {
        if (parts.pieces.size() == 1) {
            return parts.pieces.get(0);
        }
        ByteBuffer whole = ByteBuffer.allocate(parts.size);
        parts.pieces.forEach(whole::put);
        return whole.flip();
    }

    private void element(Consumed stream, ByteBuffer element) throws Violation {
        if (element.remaining() > session.limits.elementBytes()) {
            tooLarge(stream, element.remaining());
        } else {
            stream.arrived++;
            stream.consumer.element(element);
        }
    }

    /** Who was not told the limit hears from our goodbye which element it was. */
    private void tooLarge(Consumed stream, int octets) throws Violation {
        int most = session.limits.elementBytes();
        refuse(stream, "an element of " + octets + " octets, limit " + most);
        if (!told) {
            throw new Violation("E413 element " + (stream.arrived + 1) + " of " + stream.publisher
                    + " has " + octets + " octets, " + most + " at most");
        }
    }

    /** A complaint about what came: a subscriber can only cancel (2.13). */
    private void refuse(Consumed stream, String why) {
        boolean told = stream.dropped;
        cancel(stream);
        if (!told) {
            stream.consumer.ended("cancelled here: " + why);
        }
    }

    private void forgetParts(Consumed stream) {
        for (Parts each : stream.parts.values()) {
            unfinished--;
            held -= each.size;
        }
        stream.parts.clear();
    }
}
