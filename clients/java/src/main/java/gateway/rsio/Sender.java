package gateway.rsio;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Consumer;
import org.reactivestreams.Subscriber;
import org.reactivestreams.Subscription;

/**
 * Sends what it is subscribed to, and requests no more of that than the peer requests of it.
 *
 * <p>A gateway requests more when what it got is on disk. What it has not acknowledged is kept, and
 * sent again after a lost connection; with {@link Rsio#name} or a token each element is stored
 * exactly once. It connects, and connects again, until all is stored.
 *
 * <p>A sender subscribes to one publisher. Elements are not copied: they must not be changed
 * behind onNext.
 */
public final class Sender implements Subscriber<ByteBuffer>, AutoCloseable {
    /** So much is kept at most, however much the peer requests. */
    private static final int OUTBOX_ELEMENTS = 1 << 16;

    private final Rsio rsio;
    private final String publisher;
    private final int size;
    private final CompletableFuture<Void> stored = new CompletableFuture<>();
    private final ReentrantLock lock = new ReentrantLock();
    private final Pause pause = new Pause();
    // All below is touched under the lock.
    private final Outbox outbox = new Outbox();
    /** The most octets of an element that the peer takes, as it said last. */
    private long elementBytes = Serving.UNTOLD;
    private Consumer<RsioException.TooLarge> refused = this::fail;
    private Subscription upstream;
    /** Requested of upstream, and not there yet. */
    private long coming;
    private boolean completed;
    private Throwable failed;
    private boolean over;
    private String trouble = "not connected yet";
    /** Why the peer's subscription was refused. */
    private String tooLarge;
    private Session session;
    private Connection connection;
    private Stream stream;

    Sender(Rsio rsio, String publisher, int size) {
        this.rsio = rsio;
        this.publisher = Objects.requireNonNull(publisher);
        this.size = size;
    }

    /**
     * Completes when upstream has completed and all of it is acknowledged. It fails with upstream's
     * error, or with {@link RsioException} if this sender can not go on.
     */
    public CompletionStage<Void> stored() {
        return stored.minimalCompletionStage();
    }

    /** How many elements were acknowledged. */
    public long acknowledged() {
        lock.lock();
        try {
            return outbox.confirmed();
        } finally {
            lock.unlock();
        }
    }

    /** Elements that are not acknowledged, in order; some may be stored all the same. */
    public List<ByteBuffer> unacknowledged() {
        lock.lock();
        try {
            return outbox.unconfirmed();
        } finally {
            lock.unlock();
        }
    }

    /** Why nothing is sent at present; empty while the peer takes elements. */
    public String trouble() {
        lock.lock();
        try {
            return trouble;
        } finally {
            lock.unlock();
        }
    }

    /**
     * Who hears of an element that is larger than the peer takes. It is left out, and the stream
     * goes on. Otherwise such an element fails this sender. To be called before it is subscribed.
     */
    public Sender refused(Consumer<RsioException.TooLarge> each) {
        refused = Objects.requireNonNull(each);
        return this;
    }

    /** Cancels upstream and says goodbye; what is not acknowledged may or may not be stored. */
    @Override
    public void close() {
        fail(new RsioException("closed before all was acknowledged"));
    }

    // Subscriber

    @Override
    public void onSubscribe(Subscription subscription) {
        Objects.requireNonNull(subscription);
        lock.lock();
        boolean second = upstream != null || over;
        if (!second) {
            upstream = subscription;
        }
        lock.unlock();
        if (second) {
            subscription.cancel();
            return;
        }
        Thread thread = new Thread(this::run, "rsio-sender");
        thread.setDaemon(true);
        thread.start();
    }

    @Override
    public void onNext(ByteBuffer element) {
        Objects.requireNonNull(element);
        if (size > 0 && element.remaining() != size) {
            fail(new IllegalArgumentException(
                    "an element of " + element.remaining() + " octets in a stream of " + size));
            return;
        }
        RsioException.TooLarge large = null;
        lock.lock();
        try {
            if (over || completed) {
                return;
            }
            coming--;
            if (element.remaining() > elementBytes) {
                large = new RsioException.TooLarge(element, elementBytes);
            } else {
                outbox.add(element.slice());
                if (stream != null) {
                    connection.wake();
                }
            }
        } finally {
            lock.unlock();
        }
        if (large != null) {
            refused.accept(large);
            after(); // as many more are wanted
        }
    }

    @Override
    public void onError(Throwable why) {
        Objects.requireNonNull(why);
        completed(why);
    }

    @Override
    public void onComplete() {
        completed(null);
    }

    private void completed(Throwable why) {
        lock.lock();
        try {
            if (completed || over) {
                return;
            }
            completed = true;
            failed = why;
            if (connection != null) {
                connection.wake();
            }
        } finally {
            lock.unlock();
        }
        after();
    }

    // What comes of what arrived

    private void fail(Throwable why) {
        Subscription cancelled;
        lock.lock();
        try {
            if (over) {
                return;
            }
            over = true;
            cancelled = completed ? null : upstream;
            pause.end();
            if (session != null) {
                session.goodbye("");
                connection.wake();
            }
        } finally {
            lock.unlock();
        }
        if (cancelled != null) {
            cancelled.cancel();
        }
        stored.completeExceptionally(why);
    }

    /** Without the lock: requests of upstream what the peer has room for; ends if all is stored. */
    private void after() {
        long more = 0;
        boolean done = false;
        Throwable why = null;
        lock.lock();
        try {
            if (over) {
                return;
            }
            if (stream != null) {
                why = stream.refused;
                more = completed || why != null ? 0 : room();
                coming += more;
            }
            if (tooLarge != null && session != null) { // behind the onError
                trouble = tooLarge;
                tooLarge = null;
                session.goodbye("");
                connection.wake();
            }
            if (completed && outbox.size() == 0) {
                over = done = true;
                pause.end();
                if (session != null) {
                    if (stream == null) {
                        session.goodbye("");
                    } // else the stream completes first
                    connection.wake();
                }
            }
        } finally {
            lock.unlock();
        }
        if (why != null) {
            fail(why);
        } else if (more > 0) {
            upstream.request(more);
        } else if (done && failed != null) {
            stored.completeExceptionally(failed);
        } else if (done) {
            stored.complete(null);
        }
    }

    /** How many more elements upstream may send. */
    private long room() {
        long asked = stream.demand - outbox.unsent() - coming;
        return Math.max(0, Math.min(asked, OUTBOX_ELEMENTS - outbox.size() - coming));
    }

    // The thread

    private boolean isOver() {
        lock.lock();
        try {
            return over;
        } finally {
            lock.unlock();
        }
    }

    private void run() {
        while (!isOver()) {
            String why;
            try {
                why = converse(rsio.open());
            } catch (IOException gone) {
                why = gone.toString();
            } catch (RuntimeException broken) { // upstream's request broke 3.16
                fail(broken);
                return;
            }
            lock.lock();
            try {
                session = null;
                connection = null;
                stream = null;
                if (!why.isEmpty()) {
                    trouble = why;
                }
            } finally {
                lock.unlock();
            }
            if (why.startsWith("E412")) {
                fail(new RsioException.Fenced(why));
            }
            if (!isOver()) {
                pause.pause();
            }
        }
    }

    private String converse(Transport transport) {
        Session made;
        Connection on;
        lock.lock();
        try {
            made = session = new Session(new Side(), false, rsio.limits(), System::nanoTime);
            on = connection = new Connection(transport, session, lock);
            if (over) {
                session.goodbye("");
            }
            trouble = "nobody subscribes to " + publisher;
        } finally {
            lock.unlock();
        }
        on.run(this::after);
        return made.why();
    }

    private final class Side implements Session.Side {
        @Override
        public long[] extensions() {
            return rsio.extensions(true);
        }

        @Override
        public void opened() {
            rsio.identify(session);
            if (session.uses(7)) {
                Message announce = Message.text(Type.ANNOUNCE, 0, publisher);
                announce.data = ByteBuffer.wrap(outbox.instance());
                announce.number = outbox.resumed() ? 1 : 0;
                session.say(announce);
            }
        }

        @Override
        public Source publish(String name, long offset) throws Source.Refused {
            if (!name.equals(publisher)) {
                throw new Source.Refused("E404 no such publisher");
            }
            if (stream != null) {
                throw new Source.Refused("E409 one subscriber at a time");
            }
            elementBytes = session.serving.elementBytes();
            String why = outbox.rewind(offset, session.uses(7));
            stream = new Stream(offset != Session.NO_OFFSET, outbox.confirmed());
            if (why != null) {
                stream.refused = new RsioException.CannotResume(why);
                throw new Source.Refused("E416 " + why);
            }
            // Of elements that were taken on when the peer had a larger limit.
            String large = session.serving.whyTooLarge(Math.max(size, outbox.largest()));
            if (large != null) {
                stream = null;
                tooLarge = large;
                throw new Source.Refused(large);
            }
            trouble = "";
            return stream;
        }
    }

    /** What the peer subscribed to, on one connection. */
    private final class Stream implements Source {
        private final boolean resumes;
        /** How many elements were confirmed when it began. */
        private final long base;
        /** The first demand, and all after it. */
        private long window = -1;
        private long granted;
        /** Requested by the peer and not sent. */
        private long demand;
        private Throwable refused;

        Stream(boolean resumes, long base) {
            this.resumes = resumes;
            this.base = base;
        }

        @Override
        public int size() {
            return size;
        }

        @Override
        public ByteBuffer next() {
            ByteBuffer element = outbox.next();
            if (element != null) {
                demand--;
            }
            return element;
        }

        @Override
        public boolean over() {
            return completed && outbox.size() == 0;
        }

        @Override
        public String error() {
            return failed == null ? null : "E500 " + failed;
        }

        @Override
        public void requested(long more) {
            demand = Session.sum(demand, more);
            long before = outbox.confirmed();
            if (window < 0) {
                window = more;
            } else {
                granted = Session.sum(granted, more);
                outbox.demanded(base, granted);
            }
            progress(before);
        }

        /** Only what is acknowledged counts: a peer may cancel the same element again and again. */
        private void progress(long before) {
            if (outbox.confirmed() > before) {
                pause.succeeded();
            }
        }

        @Override
        public void stored(long offset) {
            long before = outbox.confirmed();
            boolean possible = resumes ? outbox.stored(offset) : outbox.storedOfStream(base, offset);
            if (!possible) {
                refused = new RsioException.CannotResume(
                        "told that " + offset + " elements are stored, more than were sent");
            }
            progress(before);
        }

        @Override
        public void ended() {
            boolean leaves = session.state() == Session.State.OPEN;
            if (stream == this && leaves && refused == null) {
                if (!over()) { // nothing is over but this stream: connect again
                    trouble = "the peer has cancelled the stream; is an element above its limit?";
                }
                session.goodbye("");
            }
        }
    }
}
