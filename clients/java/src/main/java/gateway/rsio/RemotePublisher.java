package gateway.rsio;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.Objects;
import java.util.concurrent.locks.ReentrantLock;
import org.reactivestreams.Publisher;
import org.reactivestreams.Subscriber;
import org.reactivestreams.Subscription;

/** A publisher in another process. */
record RemotePublisher(Rsio rsio, String name, boolean resuming) implements Publisher<ByteBuffer> {
    @Override
    public void subscribe(Subscriber<? super ByteBuffer> subscriber) {
        Objects.requireNonNull(subscriber);
        new Reading(this, subscriber).start();
    }

    /** One subscription: a thread connects, reads and signals, until the stream is over. */
    private static final class Reading
            implements Subscription, Session.Side, Consuming.Consumer {
        private final RemotePublisher of;
        private final ReentrantLock lock = new ReentrantLock();
        private final Pause pause = new Pause();
        // All below is changed under the lock.
        /** Null behind the last signal. Read without the lock, too. */
        private volatile Subscriber<? super ByteBuffer> subscriber;
        /** Requested and not signalled or queued. */
        private long wanted;
        private long received;
        private ArrayDeque<ByteBuffer> arrived = new ArrayDeque<>();
        private ArrayDeque<ByteBuffer> spare = new ArrayDeque<>();
        private boolean over;
        /** How it is over: null for onComplete. */
        private Throwable error;
        private boolean signalling;
        private boolean streamOver;
        private Session session;
        private Connection connection;
        private Consuming.Consumed stream;

        Reading(RemotePublisher of, Subscriber<? super ByteBuffer> subscriber) {
            this.of = of;
            this.subscriber = subscriber;
        }

        void start() {
            signalling = true; // nothing else comes before onSubscribe has returned
            subscriber.onSubscribe(this);
            lock.lock();
            signalling = false;
            lock.unlock();
            signal();
            Thread thread = new Thread(this::run, "rsio-reader");
            thread.setDaemon(true);
            thread.start();
        }

        // Subscription

        @Override
        public void request(long more) {
            lock.lock();
            try {
                if (over || subscriber == null) {
                    return;
                }
                if (more <= 0) {
                    finish(new IllegalArgumentException(
                            "request of " + more + ": demand is positive (3.9)"));
                    leave();
                } else {
                    wanted = Session.sum(wanted, more);
                    if (stream != null) {
                        session.consuming.request(stream, more);
                        connection.wake();
                    }
                }
            } finally {
                lock.unlock();
            }
            signal();
        }

        @Override
        public void cancel() {
            lock.lock();
            try {
                subscriber = null; // and with it the last reference (3.13)
                arrived.clear();
                over = true;
                leave();
            } finally {
                lock.unlock();
            }
        }

        /** Under the lock: no more of this connection. */
        private void leave() {
            pause.end();
            if (session != null) {
                if (stream != null) {
                    session.consuming.cancel(stream);
                }
                session.goodbye("");
                connection.wake();
            }
        }

        /** Under the lock: nothing follows but what has arrived. */
        private void finish(Throwable why) {
            if (!over) {
                over = true;
                error = why;
            }
        }

        /** Signals what has arrived, in one thread at a time, without the lock. */
        private void signal() {
            while (true) {
                Subscriber<? super ByteBuffer> to;
                ArrayDeque<ByteBuffer> batch;
                lock.lock();
                try {
                    to = subscriber;
                    if (signalling || to == null || arrived.isEmpty() && !over) {
                        return;
                    }
                    batch = arrived;
                    if (batch.isEmpty()) {
                        subscriber = null;
                    } else {
                        signalling = true;
                        arrived = spare;
                        spare = batch;
                    }
                } finally {
                    lock.unlock();
                }
                if (batch.isEmpty()) {
                    if (error == null) {
                        to.onComplete();
                    } else {
                        to.onError(error);
                    }
                    return;
                }
                try {
                    for (ByteBuffer each; (each = batch.poll()) != null && subscriber != null;) {
                        to.onNext(each);
                    }
                } catch (RuntimeException why) { // the subscriber broke 2.13
                    cancel();
                    throw why;
                } finally {
                    batch.clear();
                    lock.lock();
                    signalling = false;
                    lock.unlock();
                }
            }
        }

        private boolean isOver() {
            lock.lock();
            try {
                return over;
            } finally {
                lock.unlock();
            }
        }

        // The thread

        private void run() {
            while (!isOver()) {
                String why;
                try {
                    Transport transport = of.rsio.open();
                    why = converse(transport);
                } catch (IOException gone) {
                    why = gone.toString();
                }
                lock.lock();
                try {
                    session = null;
                    connection = null;
                    stream = null;
                    if (!of.resuming) {
                        finish(new RsioException.Disconnected(why));
                    }
                } finally {
                    lock.unlock();
                }
                signal();
                if (!isOver()) {
                    pause.pause();
                }
            }
        }

        private String converse(Transport transport) {
            Session made;
            Connection over;
            lock.lock();
            try {
                streamOver = false;
                made = session = new Session(this, false, of.rsio.limits(), System::nanoTime);
                over = connection = new Connection(transport, session, lock);
                if (isOver()) {
                    leave();
                }
            } finally {
                lock.unlock();
            }
            over.run(this::signal);
            return made.why();
        }

        // Session.Side

        @Override
        public long[] extensions() {
            return of.rsio.extensions(false);
        }

        @Override
        public Source publish(String publisher, long offset) throws Source.Refused {
            throw new Source.Refused("E404 this publishes nothing");
        }

        @Override
        public void opened() {
            of.rsio.identify(session);
            if (of.resuming && !session.uses(2)) {
                finish(new RsioException.CannotResume("the peer does not know offsets"));
                session.goodbye("");
                return;
            }
            long offset = of.resuming ? received : Session.NO_OFFSET;
            stream = session.consuming.subscribe(of.name, wanted, offset, this);
        }

        // Consuming.Consumer

        @Override
        public void element(ByteBuffer element) {
            received++;
            if (wanted != Long.MAX_VALUE) {
                wanted--;
            }
            pause.succeeded();
            if (subscriber != null) {
                arrived.add(element);
            }
        }

        @Override
        public void ended(String why) {
            if (streamOver || session.state() == Session.State.CLOSED) {
                return; // the connection's end, which says why
            }
            streamOver = true;
            stream = null;
            if (why == null) {
                finish(null);
            } else if (!of.resuming || !why.startsWith("E503")) {
                finish(new RsioException.StreamFailed(why));
            }
            session.goodbye("");
        }
    }
}
