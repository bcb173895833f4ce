package gateway.rsio;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.BooleanSupplier;
import java.util.stream.IntStream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.reactivestreams.Publisher;
import org.reactivestreams.Subscriber;
import org.reactivestreams.Subscription;

/** Senders and remote publishers over TCP, whose connections are cut. */
class ConnectionTest {
    private static final long SECONDS = 30;

    private SmallServer server;

    @BeforeEach
    void listen() throws Exception {
        server = new SmallServer(0, 10_000);
    }

    @AfterEach
    void close() throws Exception {
        server.close();
    }

    private Rsio rsio() {
        return Rsio.at(server.address());
    }

    private static void eventually(String what, BooleanSupplier happens) throws Exception {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(SECONDS);
        while (!happens.getAsBoolean()) {
            assertTrue(System.nanoTime() < end, what);
            Thread.sleep(2);
        }
    }

    /** How all that a sender was given ended: null if it is stored. */
    private static Throwable end(Sender sender) throws Exception {
        try {
            sender.stored().toCompletableFuture().get(SECONDS, TimeUnit.SECONDS);
            return null;
        } catch (java.util.concurrent.ExecutionException why) {
            return why.getCause();
        }
    }

    private static List<String> numbers(int count) {
        return IntStream.range(0, count).mapToObj(n -> "{\"n\":" + n + "}").toList();
    }

    /** A publisher that gives what a test offers, and notes what is requested. */
    private static final class Upstream implements Publisher<ByteBuffer>, Subscription {
        volatile long requested;
        volatile boolean cancelled;
        private Subscriber<? super ByteBuffer> subscriber;

        @Override
        public void subscribe(Subscriber<? super ByteBuffer> given) {
            subscriber = given;
            given.onSubscribe(this);
        }

        @Override
        public synchronized void request(long more) {
            requested += more;
        }

        @Override
        public void cancel() {
            cancelled = true;
        }
    }

    /** Takes what it requests, and keeps it. */
    private static final class Taker implements Subscriber<ByteBuffer> {
        final BlockingQueue<Object> signals = new LinkedBlockingQueue<>();
        volatile Subscription subscription;

        @Override
        public void onSubscribe(Subscription given) {
            subscription = given;
        }

        @Override
        public void onNext(ByteBuffer element) {
            signals.add(StandardCharsets.UTF_8.decode(element).toString());
        }

        @Override
        public void onError(Throwable why) {
            signals.add(why);
        }

        @Override
        public void onComplete() {
            signals.add("complete");
        }

        Object next() throws Exception {
            return signals.poll(SECONDS, TimeUnit.SECONDS);
        }
    }

    /** Connections that are cut while a named sender is at work cost nothing, and no doubles. */
    @Test
    void aNamedSenderIsStoredOnce() throws Exception {
        int count = 20_000;
        Sender sender = rsio().name("meter-17").sender("events");
        new Tool.Counting(count, false).subscribe(sender);
        for (int far = 1_000; far < count; far += 3_000) {
            int reached = far;
            eventually("it sends", () -> server.taken().size() > reached);
            server.cut();
        }
        assertNull(end(sender));
        assertEquals(numbers(count), server.taken());
        assertEquals(count, sender.acknowledged());
    }

    /** The next life of a name follows the one before. */
    @Test
    void theNextLifeFollows() throws Exception {
        for (int life = 0; life < 2; life++) {
            Sender sender = rsio().name("meter-17").sender("events");
            new Tool.Counting(500, false).subscribe(sender);
            assertNull(end(sender));
        }
        List<String> twice = new ArrayList<>(numbers(500));
        twice.addAll(numbers(500));
        assertEquals(twice, server.taken());
    }

    /** Of two senders of a name the later one goes on, and the other one says why it stops. */
    @Test
    void theEarlierSenderIsFenced() throws Exception {
        Upstream upstream = new Upstream();
        Sender earlier = rsio().name("meter-17").sender("events");
        upstream.subscribe(earlier);
        eventually("it is subscribed to", () -> upstream.requested > 0);
        Sender later = rsio().name("meter-17").sender("events");
        new Tool.Counting(10, false).subscribe(later);
        assertNull(end(later));
        assertInstanceOf(RsioException.Fenced.class, end(earlier));
        assertTrue(upstream.cancelled);
        assertEquals(numbers(10), server.taken());
    }

    /** Elements of any size arrive unchanged, compressed too. */
    @Test
    void largeElementsAreSplit() throws Exception {
        byte[] large = new byte[300_000];
        new java.util.Random(7).nextBytes(large);
        for (Rsio rsio : List.of(rsio(), rsio().compressed())) {
            Upstream upstream = new Upstream();
            Sender sender = rsio.sender("events");
            upstream.subscribe(sender);
            sender.onNext(ByteBuffer.wrap(large));
            sender.onNext(ByteBuffer.wrap(new byte[0]));
            sender.onComplete();
            assertNull(end(sender));
        }
        assertEquals(4, server.taken.size());
        org.junit.jupiter.api.Assertions.assertArrayEquals(large, server.taken.get(0));
        assertEquals(0, server.taken.get(1).length);
        org.junit.jupiter.api.Assertions.assertArrayEquals(large, server.taken.get(2));
    }

    /** Elements of a fixed size arrive one by one; another size ends the sender. */
    @Test
    void packedElements() throws Exception {
        Sender sender = rsio().name("packed").sender("events", Long.BYTES);
        new Tool.Counting(5_000, true).subscribe(sender);
        assertNull(end(sender));
        for (int n = 0; n < 5_000; n++) {
            assertEquals(n, ByteBuffer.wrap(server.taken.get(n)).getLong());
        }
        Upstream upstream = new Upstream();
        Sender wrong = rsio().sender("events", Long.BYTES);
        upstream.subscribe(wrong);
        wrong.onNext(ByteBuffer.allocate(7));
        assertInstanceOf(IllegalArgumentException.class, end(wrong));
        assertTrue(upstream.cancelled);
    }

    /** No more is requested of upstream than the peer has requested and not been given. */
    @Test
    void demandComesFromThePeer() throws Exception {
        Upstream upstream = new Upstream();
        Sender sender = rsio().name("slow").sender("events");
        upstream.subscribe(sender);
        eventually("the peer's window", () -> upstream.requested == 100);
        sender.onNext(ByteBuffer.wrap("one".getBytes()));
        eventually("one more", () -> upstream.requested == 101);
        assertEquals(List.of("one"), server.taken());
        server.cut(); // the new connection's window is no more room than there was
        sender.onNext(ByteBuffer.wrap("two".getBytes()));
        eventually("it is acknowledged", () -> sender.acknowledged() == 2);
        eventually("one more", () -> upstream.requested == 102);
        sender.close();
        assertInstanceOf(RsioException.class, end(sender));
        assertTrue(upstream.cancelled);
    }

    /** What upstream gave before it failed is stored, and then its error is told. */
    @Test
    void anErrorOfUpstream() throws Exception {
        Upstream upstream = new Upstream();
        Sender sender = rsio().sender("events");
        upstream.subscribe(sender);
        sender.onNext(ByteBuffer.wrap("one".getBytes()));
        sender.onError(new IllegalStateException("broken"));
        assertInstanceOf(IllegalStateException.class, end(sender));
        assertEquals(List.of("one"), server.taken());
    }

    /** Only what was requested is sent; the peer's onComplete needs no demand. */
    @Test
    void aRemotePublisherHasTheSubscribersDemand() throws Exception {
        Taker taker = new Taker();
        rsio().publisher("check/count?n=5").subscribe(taker);
        taker.subscription.request(2);
        assertEquals("0", taker.next());
        assertEquals("1", taker.next());
        // An answer on the same connection shows that nothing else was on its way.
        taker.subscription.request(1);
        assertEquals("2", taker.next());
        assertTrue(taker.signals.isEmpty());
        taker.subscription.request(2);
        assertEquals(List.of("3", "4", "complete"),
                List.of(taker.next(), taker.next(), taker.next()));
    }

    /** A lost connection ends a stream with an error, after what had arrived. */
    @Test
    void aLostConnectionIsAnError() throws Exception {
        Taker taker = new Taker();
        rsio().publisher("check/endless").subscribe(taker);
        taker.subscription.request(1);
        assertEquals("0", taker.next());
        server.cut();
        assertInstanceOf(RsioException.Disconnected.class, taker.next());
        assertTrue(taker.signals.isEmpty());
    }

    /** A publisher that resumes goes on over lost connections, without loss or doubles. */
    @Test
    void aResumingPublisherGoesOn() throws Exception {
        Taker taker = new Taker();
        rsio().resumingPublisher("check/count?n=2000").subscribe(taker);
        for (int n = 0; n < 2000; n++) {
            if (n % 500 == 250) {
                server.cut();
            }
            taker.subscription.request(1);
            assertEquals(Integer.toString(n), taker.next());
        }
        assertEquals("complete", taker.next());
    }

    /** The peer's errors are told as it says them, and end a publisher that resumes as well. */
    @Test
    void errorsOfThePeer() throws Exception {
        for (Publisher<ByteBuffer> each : List.of(rsio().publisher("check/fail?n=0"),
                rsio().resumingPublisher("check/fail?n=0"))) {
            Taker taker = new Taker();
            each.subscribe(taker);
            Object why = taker.next();
            assertInstanceOf(RsioException.StreamFailed.class, why);
            assertEquals("E500 as asked", ((Throwable) why).getMessage());
        }
    }

    /** Elements above the limit end their stream with an error that says so. */
    @Test
    void tooLargeAnElement() throws Exception {
        Taker taker = new Taker();
        rsio().elementBytes(1000).publisher("check/large?n=1&octets=5000").subscribe(taker);
        taker.subscription.request(1);
        Object why = taker.next();
        assertInstanceOf(RsioException.StreamFailed.class, why);
        assertTrue(((Throwable) why).getMessage().contains("1000"));
    }

    /** It is refused by itself, with the limit, and all others are stored. */
    @Test
    void anElementAboveThePeersLimit() throws Exception {
        Upstream upstream = new Upstream();
        BlockingQueue<RsioException.TooLarge> refused = new LinkedBlockingQueue<>();
        Sender sender = rsio().name("meter-17").sender("events").refused(refused::add);
        upstream.subscribe(sender);
        eventually("demand", () -> upstream.requested > 0);
        sender.onNext(ByteBuffer.wrap("one".getBytes()));
        sender.onNext(ByteBuffer.allocate((1 << 20) + 1));
        sender.onNext(ByteBuffer.wrap("three".getBytes()));
        sender.onComplete();
        assertNull(end(sender));
        assertEquals(List.of("one", "three"), server.taken());
        assertEquals(1 << 20, refused.remove().most());
        assertEquals(0, refused.size());
    }

    /** Who does not ask to hear of them by themselves has the sender fail, with the limit. */
    @Test
    void anElementAboveThePeersLimitThatNobodyMinds() throws Exception {
        Upstream upstream = new Upstream();
        Sender sender = rsio().sender("events");
        upstream.subscribe(sender);
        eventually("demand", () -> upstream.requested > 0);
        sender.onNext(ByteBuffer.allocate((1 << 20) + 1));
        Throwable why = end(sender);
        assertInstanceOf(RsioException.TooLarge.class, why);
        assertTrue(why.getMessage().contains("1048577 octets; the peer takes 1048576"));
    }

    /** To a peer that says nothing of its limit it comes again and again, and is named. */
    @Test
    void anElementAboveALimitThatNobodyKnows() throws Exception {
        server.extensions = new long[] {1, 2, 3, 4, 5, 6, 7};
        Upstream upstream = new Upstream();
        Sender sender = rsio().name("meter-17").sender("events");
        upstream.subscribe(sender);
        sender.onNext(ByteBuffer.wrap("one".getBytes()));
        sender.onNext(ByteBuffer.allocate((1 << 20) + 1));
        sender.onNext(ByteBuffer.wrap("three".getBytes()));
        eventually("it says why", () -> sender.trouble().startsWith("E413 element 2 of events"));
        eventually("what is before it", () -> sender.acknowledged() == 1);
        assertEquals(2, sender.unacknowledged().size());
        assertEquals(List.of("one"), server.taken());
        sender.close();
        assertInstanceOf(RsioException.class, end(sender));
    }

    /** What a program's own code throws ends what it was called for, and is not lost. */
    @Test
    void anUpstreamThatBreaks() throws Exception {
        Sender sender = rsio().sender("events");
        sender.onSubscribe(new Subscription() {
            @Override
            public void request(long more) {
                throw new IllegalStateException("broken");
            }

            @Override
            public void cancel() {}
        });
        assertInstanceOf(IllegalStateException.class, end(sender));
    }

    /** A sender waits for a peer that is not there yet, and says what keeps it. */
    @Test
    void theServerComesLater() throws Exception {
        int port = server.port();
        server.close();
        Sender sender = rsio().name("meter-17").sender("events");
        new Tool.Counting(3, false).subscribe(sender);
        eventually("it says why", () -> sender.trouble().contains("refused"));
        server = new SmallServer(port, 10_000);
        assertNull(end(sender));
        assertEquals(numbers(3), server.taken());
    }

    /** A port without HTTP/2 is not waited for in silence. */
    @Test
    void noHttp2There() throws Exception {
        Sender sender = Rsio.at("http://127.0.0.1:" + server.port()).sender("events");
        new Tool.Counting(3, false).subscribe(sender);
        eventually("it says why", () -> sender.trouble().contains("no HTTP/2 there"));
        sender.close();
    }

    /** A peer is given up when it has said nothing for three times as long as it takes to ask. */
    @Test
    void aSilentPeer() {
        List<Integer> reads = new ArrayList<>();
        Transport silent = new Transport() {
            @Override
            public int read(ByteBuffer room) {
                reads.add(reads.isEmpty() ? 4 : 0);
                room.put(new byte[] {2, 0, 1, 1}, 0, reads.get(reads.size() - 1));
                return reads.get(reads.size() - 1);
            }

            @Override
            public void patience(int milliseconds) {}

            @Override
            public void write(ByteBuffer data) {}

            @Override
            public void end() {}

            @Override
            public void close() {}
        };
        Session session = new Recorder().client();
        new Connection(silent, session, new ReentrantLock()).run(() -> {});
        assertEquals("no sign of life for a minute and a half", session.why());
        assertEquals(List.of(4, 0, 0, 0, 0), reads); // the last one behind the end
    }

    /** What is no address, or no limit, is refused at once. */
    @Test
    void addresses() {
        for (String wrong : List.of("gw.example:7400", "ftp://gw.example", "tcp://gw.example",
                "tcp://gw.example:70000")) {
            assertThrows(IllegalArgumentException.class, () -> Rsio.at(wrong), wrong);
        }
        assertThrows(IllegalArgumentException.class, () -> rsio().elementBytes(0));
    }
}
