package gateway.rsio;

import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.List;
import java.util.Set;

/** One end of a conversation without a transport: what it published, and what it was given. */
final class Recorder implements Session.Side, Consuming.Consumer {
    final List<ByteBuffer> elements = new ArrayList<>();
    final Deque<ByteBuffer> unsent = new ArrayDeque<>();
    final Set<String> announced = new HashSet<>();
    int size;
    long demand = 100;
    boolean compresses;
    String ended = "not yet";
    Session session;
    Consuming.Consumed stream;

    /** A client that subscribes to {@code events} once it is greeted. */
    Session client() {
        return session = new Session(this, false, new Limits(1 << 24), () -> 0);
    }

    /** A server that subscribes to {@code events} once it is greeted. */
    Session server() {
        return session = new Session(this, true, new Limits(1 << 24), () -> 0);
    }

    /** Gives a session octets, so many at a time. */
    static void deliver(Session session, ByteBuffer data, int step) {
        while (data.hasRemaining() && session.state() != Session.State.CLOSED) {
            ByteBuffer room = session.room();
            int count = Math.min(Math.min(step, room.remaining()), data.remaining());
            room.put(data.slice(data.position(), count));
            data.position(data.position() + count);
            session.received(count);
        }
    }

    static String hex(ByteBuffer element) {
        byte[] octets = new byte[element.remaining()];
        element.get(element.position(), octets);
        return HexFormat.of().formatHex(octets);
    }

    @Override
    public long[] extensions() {
        return compresses ? new long[] {1, 2, 3, 5, 6} : new long[] {1, 2, 3, 5, 7, 8};
    }

    @Override
    public void opened() {
        stream = session.consuming.subscribe("events", demand, Session.NO_OFFSET, this);
        if (compresses) {
            session.compress();
        }
    }

    @Override
    public void announced(Message announce) throws Violation {
        if (!announced.add(announce.text)) {
            throw new Violation("announced again too early");
        }
    }

    @Override
    public Source publish(String publisher, long offset) {
        return new Source() {
            @Override
            public int size() {
                return size;
            }

            @Override
            public ByteBuffer next() {
                return unsent.poll();
            }

            @Override
            public boolean over() {
                return unsent.isEmpty();
            }
        };
    }

    @Override
    public void element(ByteBuffer element) {
        elements.add(element);
    }

    @Override
    public void ended(String error) {
        ended = error;
    }
}
