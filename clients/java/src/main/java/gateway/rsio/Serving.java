package gateway.rsio;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** The streams of a connection that the peer subscribed to: their demand, and their turns. */
final class Serving {
    /** Of any size. */
    static final long UNTOLD = Long.MAX_VALUE;

    /** A message has no more of an element, and no stream more elements in a row. */
    private static final int TURN_BYTES = 8192;

    private static final class Served {
        final long subscriber;
        final Source source;
        long demand;
        /** Taken out of the source and not sent, or not to its end. */
        ByteBuffer unsent;
        int sent;
        long splitId;

        Served(long subscriber, Source source) {
            this.subscriber = subscriber;
            this.source = source;
        }
    }

    private final Session session;
    private final Map<Long, Served> streams = new HashMap<>();
    /** The same streams, in the order of their turns. */
    private final List<Served> turns = new ArrayList<>();
    private final Output pack = new Output();
    /** The most octets of an element that the peer takes; it may never have said so. */
    private long elementBytes = UNTOLD;
    private boolean asked;

    Serving(Session session) {
        this.session = session;
    }

    long elementBytes() {
        return elementBytes;
    }

    /** The peer says what it takes, before it subscribes. */
    void told(long most) throws Violation {
        if (elementBytes != UNTOLD || asked || most == 0) {
            throw new Violation("limits that come again, too late, or allow nothing");
        }
        elementBytes = most < 0 ? UNTOLD - 1 : most;
    }

    /** Why no element of so many octets may be sent; null if it may. */
    String whyTooLarge(long octets) {
        return octets <= elementBytes ? null
                : "E413 an element of " + octets + " octets, " + elementBytes + " at most";
    }

    void take(Message message) throws Violation {
        if (message.type == Type.SUBSCRIBE || message.type == Type.SUBSCRIBE_FROM) {
            subscribe(message);
            return;
        }
        Served stream = streams.get(message.subscriber);
        if (stream == null) {
            return; // it crossed the end of its stream
        }
        switch (message.type) {
            case CANCEL -> remove(stream);
            case STORED -> stream.source.stored(message.offset);
            default -> request(stream, message.number);
        }
    }

    private void subscribe(Message message) throws Violation {
        long id = message.subscriber;
        asked = true;
        if (streams.containsKey(id)) {
            throw new Violation("the Id is in use (1.10)");
        }
        Served stream;
        try {
            if (streams.size() >= Limits.STREAMS) {
                throw new Source.Refused("E429 too many streams");
            }
            if (message.number < 0) {
                throw new Source.Refused("E400 demand is not positive (3.9)");
            }
            boolean resumes = message.type == Type.SUBSCRIBE_FROM;
            long offset = resumes ? message.offset : Session.NO_OFFSET;
            if (resumes && offset < 0) {
                throw new Source.Refused("E416 offset out of range");
            }
            stream = new Served(id, session.side.publish(message.text, offset));
            String why = whyTooLarge(stream.source.size());
            if (why != null) {
                throw new Source.Refused(why);
            }
        } catch (Source.Refused why) {
            session.say(Message.number(Type.ON_SUBSCRIBE, id, 0));
            session.say(Message.text(Type.ON_ERROR, id, why.getMessage()));
            return;
        }
        streams.put(id, stream);
        turns.add(stream);
        session.say(Message.number(Type.ON_SUBSCRIBE, id, stream.source.size()));
        stream.demand = message.number;
        stream.source.requested(message.number);
    }

    private void request(Served stream, long more) {
        if (more <= 0) {
            remove(stream);
            session.say(Message.text(
                    Type.ON_ERROR, stream.subscriber, "E400 demand is not positive (3.9)"));
            return;
        }
        stream.demand = Session.sum(stream.demand, more);
        stream.source.requested(more);
    }

    private void remove(Served stream) {
        streams.remove(stream.subscriber);
        turns.remove(stream);
        stream.source.ended();
    }

    void end() {
        for (Served each : List.copyOf(turns)) {
            remove(each);
        }
    }

    /** Gives each stream its turn, until `full` octets are there or none has anything to send. */
    void fill(Output output, int full) {
        boolean moved = true;
        while (moved && output.size() < full) {
            moved = false;
            for (int n = 0; n < turns.size(); n++) {
                Served stream = turns.get(n);
                moved |= turn(stream, output);
                if (n >= turns.size() || turns.get(n) != stream) {
                    n--; // it is over
                }
            }
        }
    }

    private boolean turn(Served stream, Output output) {
        int size = stream.source.size();
        boolean packs = size > 0 && size <= TURN_BYTES / 2;
        boolean moved = packs ? packed(stream, size, output) : single(stream, size > 0, output);
        if (streams.get(stream.subscriber) != stream) {
            return true;
        }
        if (stream.unsent == null && stream.source.over()) {
            remove(stream);
            String error = stream.source.error();
            output.message(error == null
                    ? Message.of(Type.ON_COMPLETE, stream.subscriber)
                    : Message.text(Type.ON_ERROR, stream.subscriber, error));
            return true;
        }
        return moved;
    }

    private ByteBuffer next(Served stream) {
        if (stream.unsent != null) {
            return stream.unsent;
        }
        ByteBuffer element = stream.demand > 0 ? stream.source.next() : null;
        String why = element == null ? null : whyTooLarge(element.remaining());
        if (why != null) {
            remove(stream);
            session.say(Message.text(Type.ON_ERROR, stream.subscriber, why));
            return null;
        }
        if (element != null) {
            stream.demand--;
            session.moved();
        }
        return element;
    }

    private boolean packed(Served stream, int size, Output output) {
        pack.clear();
        int count = 0;
        for (ByteBuffer element;
                (count + 1) * size <= TURN_BYTES && (element = next(stream)) != null;
                count++) {
            pack.raw(element);
        }
        if (count == 1) {
            output.element(stream.subscriber, pack.written(), true);
        } else if (count > 1) {
            output.octet(Type.ON_NEXT_PACKED.code);
            output.varint(stream.subscriber);
            output.varint(count);
            output.raw(pack.written());
        }
        return count > 0;
    }

    private boolean single(Served stream, boolean fixed, Output output) {
        int left = TURN_BYTES;
        boolean moved = false;
        for (ByteBuffer element; (element = next(stream)) != null; moved = true) {
            stream.unsent = element;
            if (element.remaining() > TURN_BYTES) {
                if (!moved) {
                    part(stream, element, output);
                    moved = true;
                }
                break;
            }
            left -= element.remaining();
            if (left < 0) {
                break;
            }
            output.element(stream.subscriber, element, fixed);
            stream.unsent = null;
        }
        return moved;
    }

    private void part(Served stream, ByteBuffer element, Output output) {
        int count = Math.min(TURN_BYTES, element.remaining() - stream.sent);
        boolean last = stream.sent + count == element.remaining();
        output.octet((last ? Type.ON_NEXT_LAST_PART : Type.ON_NEXT_PART).code);
        output.varint(stream.subscriber);
        output.varint(stream.splitId);
        output.varint(count);
        output.raw(element, element.position() + stream.sent, count);
        stream.sent += count;
        if (last) {
            stream.unsent = null;
            stream.sent = 0;
            stream.splitId++;
        }
    }
}
