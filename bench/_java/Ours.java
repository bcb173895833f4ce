import gateway.rsio.Rsio;
import gateway.rsio.Sender;
import java.nio.ByteBuffer;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicLong;
import org.reactivestreams.Publisher;
import org.reactivestreams.Subscriber;
import org.reactivestreams.Subscription;

/**
 * `send` or `read` with the client for the JVM: address, octets or publisher, seconds.
 *
 * <p>What ends is read again from its beginning; then it says how many elements it has.
 */
final class Ours {
    private Ours() {}

    public static void main(String[] words) throws InterruptedException {
        Rsio gateway = Rsio.at(words[1]);
        String[] seconds = {words[3], words[4]};
        if (words[0].equals("send")) {
            send(gateway.name("bench"), Integer.parseInt(words[2]), seconds);
        } else {
            Reader reader = new Reader(gateway.publisher(words[2]));
            reader.again();
            Meter.measure(seconds, reader.elements::get);
            if (words[2].contains("to=")) {
                Meter.say("read", ", \"elements\": " + reader.whole.join());
            }
        }
        System.exit(0);
    }

    private static void send(Rsio gateway, int octets, String[] seconds)
            throws InterruptedException {
        byte[][] elements = Meter.elements(octets);
        Sender sender = gateway.sender("events");
        Endless endless = new Endless(elements, sender);
        endless.subscribe();
        Meter.measure(seconds, sender::acknowledged);
        endless.ends = true;
        sender.stored().toCompletableFuture().join();
        Meter.say("drained", ", \"events\": " + sender.acknowledged());
    }

    /** Gives what is requested at once, in the thread that requests. */
    private static final class Endless implements Subscription {
        private final byte[][] elements;
        private final Subscriber<ByteBuffer> subscriber;
        private long given;
        volatile boolean ends;

        Endless(byte[][] elements, Subscriber<ByteBuffer> subscriber) {
            this.elements = elements;
            this.subscriber = subscriber;
        }

        void subscribe() {
            subscriber.onSubscribe(this);
        }

        @Override
        public void request(long more) {
            for (long n = 0; n < more && !ends; n++) {
                subscriber.onNext(
                        ByteBuffer.wrap(elements[(int) (given++ & elements.length - 1)]));
            }
            if (ends) {
                subscriber.onComplete();
            }
        }

        @Override
        public void cancel() {
            ends = true;
        }
    }

    private static final class Reader implements Subscriber<ByteBuffer> {
        final AtomicLong elements = new AtomicLong();
        final CompletableFuture<Long> whole = new CompletableFuture<>();
        private final Publisher<ByteBuffer> publisher;

        Reader(Publisher<ByteBuffer> publisher) {
            this.publisher = publisher;
        }

        void again() {
            publisher.subscribe(this);
        }

        @Override
        public void onSubscribe(Subscription subscription) {
            subscription.request(Long.MAX_VALUE);
        }

        @Override
        public void onNext(ByteBuffer element) {
            elements.lazySet(elements.get() + 1);
        }

        @Override
        public void onError(Throwable why) {
            System.err.println(why);
            System.exit(1);
        }

        @Override
        public void onComplete() {
            whole.complete(elements.get());
            again();
        }
    }
}
