package gateway.rsio;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import net.jqwik.api.Example;
import net.jqwik.api.ForAll;
import net.jqwik.api.Property;
import net.jqwik.api.constraints.IntRange;
import net.jqwik.api.constraints.Size;

/** Two sessions that talk, with their octets cut anywhere; and an outbox over lost connections. */
class SlicingTest {
    private static ByteBuffer element(int octets, int number) {
        ByteBuffer made = ByteBuffer.allocate(octets);
        for (int n = 0; n < octets; n++) {
            made.put(n, (byte) (number * 31 + n));
        }
        return made;
    }

    /**
     * Elements of any size, in a stream of a fixed size too, split, packed and in blocks, come out
     * whole and in order, never more than were requested, and then the stream completes.
     */
    @Property(tries = 300)
    void whatIsPublishedIsWhatArrives(
            @ForAll @Size(max = 40) List<@IntRange(max = 40_000) Integer> sizes,
            @ForAll @Size(min = 1, max = 20) List<@IntRange(min = 1, max = 30_000) Integer> cuts,
            @ForAll @IntRange(min = 1, max = 9) int demand,
            @ForAll boolean fixed,
            @ForAll boolean compressed) {
        Recorder reader = new Recorder();
        Recorder writer = new Recorder();
        reader.demand = demand;
        reader.compresses = writer.compresses = compressed;
        writer.size = fixed && !sizes.isEmpty() ? Math.max(1, sizes.get(0)) : 0;
        List<String> expected = new ArrayList<>();
        for (int n = 0; n < sizes.size(); n++) {
            ByteBuffer made = element(writer.size > 0 ? writer.size : sizes.get(n), n);
            writer.unsent.add(made);
            expected.add(Recorder.hex(made));
        }
        Session client = reader.client();
        Session server = writer.server();
        long requested = demand;
        Output output = new Output();
        int cut = 0;
        for (boolean moved = true; moved;) {
            moved = false;
            for (Session from : List.of(client, server)) {
                output.clear();
                from.fill(output);
                if (output.size() > 0) {
                    moved = true;
                    ByteBuffer data = output.written();
                    while (data.hasRemaining()) {
                        int count = Math.min(cuts.get(cut++ % cuts.size()), data.remaining());
                        Recorder.deliver(from == client ? server : client,
                                data.slice(data.position(), count), count);
                        data.position(data.position() + count);
                    }
                }
            }
            assertTrue(reader.elements.size() <= requested);
            if (reader.elements.size() == requested) {
                client.consuming.request(reader.stream, demand);
                requested += demand;
            }
        }
        assertEquals(Session.State.OPEN, client.state(), client.why());
        assertEquals(Session.State.OPEN, server.state(), server.why());
        assertEquals(expected, reader.elements.stream().map(Recorder::hex).toList());
        assertNull(reader.ended);
    }

    /** Elements that are acknowledged one by one, by stored and request, are no flood. */
    @Example
    void eachElementIsFollowedByTwoMessages() {
        Recorder publisher = new Recorder();
        Session session = publisher.client();
        Output said = new Output();
        Message hello = new Message(Type.SERVER_HELLO);
        hello.extensions = new long[] {2};
        said.message(hello);
        Message subscribe = Message.text(Type.SUBSCRIBE, 1, "events");
        subscribe.number = 1;
        said.message(subscribe);
        publisher.unsent.add(element(1, 0));
        for (int n = 1; n <= 20_000; n++) {
            publisher.unsent.add(element(1, n)); // one more than is requested
            Recorder.deliver(session, said.written(), said.size());
            session.fill(new Output());
            said.clear();
            Message stored = Message.of(Type.STORED, 1);
            stored.offset = n;
            said.message(stored);
            said.message(Message.number(Type.REQUEST, 1, 1));
        }
        assertEquals(Session.State.OPEN, session.state(), session.why());
    }

    /** Any octets end a conversation, or are taken; nothing else comes of them. */
    @Property(tries = 500)
    void anyOctetsAreTakenOrRefused(@ForAll @Size(max = 200) byte[] octets) {
        Session session = new Recorder().server();
        Recorder.deliver(session, ByteBuffer.wrap(new byte[] {1, 0, 2, 1, 6}), 5);
        Recorder.deliver(session, ByteBuffer.wrap(octets), octets.length);
        session.fill(new Output());
        assertTrue(session.state() != Session.State.GREETING);
    }

    /**
     * A gateway that loses connections at any point, and what was on its way, and tells late of
     * what it has: each element is stored once, in order.
     */
    @Property(tries = 500)
    void anOutboxIsStoredOnce(@ForAll @Size(max = 60) List<@IntRange(max = 5) Integer> steps) {
        Outbox outbox = new Outbox();
        List<Integer> stored = new ArrayList<>(List.of(-2, -1)); // of an earlier life
        int given = 0;
        assertNull(outbox.rewind(stored.size(), true));
        for (int step : steps) {
            switch (step) {
                case 0, 1 -> outbox.add(ByteBuffer.allocate(4).putInt(0, given++));
                case 2, 3 -> {
                    ByteBuffer sent = outbox.next();
                    if (sent != null && step == 2) {
                        stored.add(sent.getInt(0)); // else it is lost, and all that follows
                    } else {
                        assertNull(outbox.rewind(stored.size(), true));
                    }
                }
                case 4 -> assertTrue(outbox.stored(stored.size()));
                default -> assertNull(outbox.rewind(stored.size(), true));
            }
            assertEquals(given, outbox.confirmed() + outbox.size());
        }
        for (ByteBuffer sent; (sent = outbox.next()) != null;) {
            stored.add(sent.getInt(0));
        }
        List<Integer> all = new ArrayList<>();
        for (int n = -2; n < given; n++) {
            all.add(n);
        }
        assertEquals(all, stored);
        assertTrue(outbox.stored(stored.size()));
        assertEquals(0, outbox.size());
        assertTrue(!outbox.stored(stored.size() + 1));
    }
}
