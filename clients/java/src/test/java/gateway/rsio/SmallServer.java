package gateway.rsio;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.locks.ReentrantLock;

/**
 * A peer for tests, out of the client's own session: it publishes {@code check/…} and what it took,
 * and subscribes to {@code events} and {@code more}. It keeps all in memory.
 *
 * <p>As a program it prints its port, for rsio-check: {@code SmallServer [PORT]}.
 */
final class SmallServer implements AutoCloseable {
    private static final int WINDOW = 100;
    private static final int ELEMENT_BYTES = 1 << 20;
    /** What is in the kernel a reader in Python has to read, before it sees what we answered. */
    private static final int SEND_BYTES = 1 << 16;
    private static final long TICK_NANOS = 100_000_000L;
    private static final List<String> PUBLISHERS = List.of("events", "more");

    private static final class Progress {
        long stored;
        String life;
        Peer owner;
    }

    private final ReentrantLock lock = new ReentrantLock();
    volatile long[] extensions = {1, 2, 3, 4, 5, 6, 7, 8};
    private final ServerSocket listening;
    private final int helloMilliseconds;
    final List<byte[]> taken = new ArrayList<>();
    private final List<ByteBuffer> events = new ArrayList<>();
    private final Map<List<String>, Progress> progress = new HashMap<>();
    private final Set<Peer> peers = new HashSet<>();

    SmallServer(int port, int helloMilliseconds) throws IOException {
        this(new ServerSocket(port, 50, InetAddress.getLoopbackAddress()), helloMilliseconds);
    }

    SmallServer(ServerSocket listening, int helloMilliseconds) {
        this.listening = listening;
        this.helloMilliseconds = helloMilliseconds;
        daemon(this::accept);
    }

    static void daemon(Runnable run) {
        Thread thread = new Thread(run, "small-server");
        thread.setDaemon(true);
        thread.start();
    }

    int port() {
        return listening.getLocalPort();
    }

    String address() {
        return "tcp://127.0.0.1:" + port();
    }

    /** What it took so far, in order. */
    List<String> taken() {
        lock.lock();
        try {
            return taken.stream().map(each -> new String(each, StandardCharsets.UTF_8)).toList();
        } finally {
            lock.unlock();
        }
    }

    /** Cuts all connections off, as a crash does. */
    void cut() {
        lock.lock();
        try {
            peers.forEach(each -> each.transport.close());
        } finally {
            lock.unlock();
        }
    }

    @Override
    public void close() throws IOException {
        listening.close();
        cut();
    }

    private void accept() {
        try {
            while (true) {
                Socket socket = listening.accept();
                socket.setSendBufferSize(SEND_BYTES);
                daemon(() -> serve(socket));
            }
        } catch (IOException closed) {
            // That ends it.
        }
    }

    private void serve(Socket socket) {
        try {
            Peer peer = new Peer(new SocketTransport(socket));
            lock.lock();
            try {
                peers.add(peer);
            } finally {
                lock.unlock();
            }
            daemon(peer::watch);
            peer.connection.run(peer::grant);
            lock.lock();
            try {
                peers.remove(peer);
            } finally {
                lock.unlock();
            }
        } catch (IOException gone) {
            // It went before it came.
        }
    }

    /** One connection. */
    private final class Peer implements Session.Side {
        final Transport transport;
        final Session session;
        final Connection connection;
        final List<Taking> takings = new ArrayList<>();

        Peer(Transport transport) {
            this.transport = transport;
            session = new Session(this, true, new Limits(ELEMENT_BYTES), System::nanoTime);
            connection = new Connection(transport, session, lock);
        }

        /** Ends a conversation that does not begin, and lets slow sources go on. */
        void watch() {
            long began = System.nanoTime();
            while (true) {
                try {
                    Thread.sleep(20);
                } catch (InterruptedException why) {
                    return;
                }
                lock.lock();
                try {
                    Session.State state = session.state();
                    if (state == Session.State.CLOSED) {
                        return;
                    }
                    boolean new_ = state == Session.State.GREETING
                            || state == Session.State.UNIDENTIFIED;
                    if (new_ && System.nanoTime() - began > helloMilliseconds * 1_000_000L) {
                        session.violated("no hello, or no token, in time");
                        try {
                            transport.patience(1);
                            transport.end();
                        } catch (IOException gone) {
                            return;
                        }
                    }
                    connection.wake();
                } finally {
                    lock.unlock();
                }
            }
        }

        void grant() {
            lock.lock();
            try {
                for (Taking each : takings) {
                    each.grant();
                }
                connection.wake();
            } finally {
                lock.unlock();
            }
        }

        @Override
        public long[] extensions() {
            return extensions;
        }

        @Override
        public void opened() {
            if (!session.uses(7)) {
                PUBLISHERS.forEach(each -> consume(each, null));
            }
        }

        void consume(String publisher, Progress known) {
            Progress found = known;
            if (found == null && session.identity() != null && session.uses(2)) {
                found = progress.computeIfAbsent(
                        List.of(session.identity(), publisher), key -> new Progress());
            }
            Taking taking = new Taking(this, publisher, found);
            takings.add(taking);
            long offset = found == null ? Session.NO_OFFSET : found.stored;
            taking.stream = session.consuming.subscribe(publisher, WINDOW, offset, taking);
        }

        @Override
        public void announced(Message announce) throws Violation {
            String publisher = announce.text;
            for (Taking each : takings) {
                if (each.publisher.equals(publisher) && !each.over()) {
                    throw new Violation("announced again too early");
                }
            }
            if (!PUBLISHERS.contains(publisher)) {
                return;
            }
            String name = String.valueOf(session.identity());
            Progress known = progress.computeIfAbsent(
                    List.of(name, publisher), key -> new Progress());
            String life = Arrays.toString(announce.data.array());
            boolean refused = known.life == null ? known.stored > 0 : !known.life.equals(life);
            if (announce.number == 1 && refused) {
                throw new Violation("E412 another life of this sender began later");
            }
            if (known.owner != this && known.owner != null) {
                known.owner.takenOver(publisher, known.life != null && !known.life.equals(life));
            }
            known.owner = this;
            known.life = announce.data.hasRemaining() ? life : null;
            consume(publisher, known);
        }

        private void takenOver(String publisher, boolean fenced) {
            if (fenced) {
                session.violated("E412 another life of this sender began later");
            }
            for (Taking each : takings) {
                if (each.publisher.equals(publisher)) {
                    session.consuming.cancel(each.stream);
                }
            }
            connection.wake();
        }

        @Override
        public Source publish(String publisher, long offset) throws Source.Refused {
            return source(publisher, Math.max(offset, 0));
        }
    }

    /** What one of a peer's publishers sends. */
    private final class Taking implements Consuming.Consumer {
        final Peer peer;
        final String publisher;
        final Progress progress;
        final long first;
        Consuming.Consumed stream;
        long count;
        long granted;
        boolean ended;

        Taking(Peer peer, String publisher, Progress progress) {
            this.peer = peer;
            this.publisher = publisher;
            this.progress = progress;
            this.first = progress == null ? 0 : progress.stored;
        }

        boolean over() {
            return ended || stream.dropped();
        }

        @Override
        public void element(ByteBuffer element) {
            byte[] octets = new byte[element.remaining()];
            element.get(octets);
            count++;
            if (progress != null) {
                progress.stored = first + count;
            }
            taken.add(octets);
            String event = "{\"lsn\":" + events.size() + ",\"channel\":\"" + publisher
                    + "\",\"seq\":" + (first + count) + ",\"payload_base64\":\""
                    + Base64.getEncoder().encodeToString(octets) + "\"}";
            events.add(ByteBuffer.wrap(event.getBytes(StandardCharsets.UTF_8)));
        }

        @Override
        public void ended(String error) {
            ended = true;
        }

        void grant() {
            if (over() || count == granted) {
                return;
            }
            if (peer.session.uses(2)) {
                peer.session.consuming.stored(stream, first + count);
            }
            peer.session.consuming.request(stream, count - granted);
            granted = count;
        }
    }

    // What it publishes

    private Source source(String publisher, long first) throws Source.Refused {
        String[] parts = publisher.split("\\?", 2);
        Map<String, String> keys = new HashMap<>();
        if (parts.length == 2) {
            for (String pair : parts[1].split("&")) {
                String[] one = pair.split("=", 2);
                keys.put(one[0], one[1]);
            }
        }
        long count = Long.parseLong(keys.getOrDefault("n", "0"));
        int size = Integer.parseInt(keys.getOrDefault("size", "0"));
        boolean resumes = Set.of("check/count", "check/fail", "check/endless", "events")
                .contains(parts[0]);
        if (first > 0 && !resumes || first > count && parts[0].matches("check/(count|fail)")) {
            throw new Source.Refused("E416 offset out of range");
        }
        return switch (parts[0]) {
            case "check/count" -> new Numbers(first, count, size, null);
            case "check/fail" -> new Numbers(first, count, size, "E500 as asked");
            case "check/endless" -> new Numbers(first, Long.MAX_VALUE, 0, null);
            case "check/never" -> new Numbers(0, Long.MAX_VALUE, 0, null) {
                @Override
                public ByteBuffer next() {
                    return null;
                }
            };
            case "check/slow" -> {
                long began = System.nanoTime();
                yield new Numbers(0, count, 0, null) {
                    @Override
                    public ByteBuffer next() {
                        boolean there = next < (System.nanoTime() - began) / TICK_NANOS;
                        return there ? super.next() : null;
                    }
                };
            }
            case "check/large" -> {
                byte[] octets = new byte[Integer.parseInt(keys.get("octets"))];
                Arrays.fill(octets, (byte) 'x');
                yield new Numbers(0, count, 0, null) {
                    @Override
                    public ByteBuffer next() {
                        return super.next() == null ? null : ByteBuffer.wrap(octets);
                    }
                };
            }
            case "events" -> {
                String from = keys.getOrDefault("from", "0");
                yield new Stored((from.equals("latest") ? events.size() : Long.parseLong(from))
                        + first);
            }
            default -> throw new Source.Refused("E404 no such publisher");
        };
    }

    private static class Numbers implements Source {
        long next;
        private final long end;
        private final int size;
        private final String error;

        Numbers(long first, long end, int size, String error) {
            this.next = first;
            this.end = end;
            this.size = size;
            this.error = error;
        }

        @Override
        public int size() {
            return size;
        }

        @Override
        public ByteBuffer next() {
            if (next >= end) {
                return null;
            }
            long number = next++;
            if (size == 0) {
                return ByteBuffer.wrap(Long.toString(number).getBytes(StandardCharsets.US_ASCII));
            }
            return ByteBuffer.allocate(8).putLong(0, number).slice(8 - size, size);
        }

        @Override
        public boolean over() {
            return next >= end;
        }

        @Override
        public String error() {
            return error;
        }
    }

    private final class Stored implements Source {
        private long next;

        Stored(long first) {
            next = first;
        }

        @Override
        public ByteBuffer next() {
            return next < events.size() ? events.get((int) next++) : null;
        }

        @Override
        public boolean over() {
            return false;
        }
    }

    public static void main(String... words) throws Exception {
        int hello = Integer.parseInt(System.getenv().getOrDefault("HELLO_MS", "10000"));
        SmallServer server =
                new SmallServer(words.length == 0 ? 0 : Integer.parseInt(words[0]), hello);
        System.out.println(server.port());
        Thread.currentThread().join();
    }
}
