package gateway.rsio;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;

/**
 * Moves octets between a session and a transport, in two threads: whoever calls {@link #run} reads,
 * one of its own writes.
 *
 * <p>A peer that does not read holds back the writing thread alone; so both ends can not wait for
 * each other. The session is touched only under the lock.
 */
final class Connection {
    private static final int SILENCE_MILLISECONDS = 30_000;
    /** Before a peer is given up: a gateway that does not read pings once a minute. */
    private static final int PINGS = 2;
    private static final int GOODBYE_SECONDS = 5;
    private static final int HELLO_MILLISECONDS = 10_000;
    private static final int LAST_MILLISECONDS = 1_000;

    private final Transport transport;
    private final Session session;
    private final ReentrantLock lock;
    private final Condition changed;
    private boolean writerWaits;

    Connection(Transport transport, Session session, ReentrantLock lock) {
        this.transport = transport;
        this.session = session;
        this.lock = lock;
        this.changed = lock.newCondition();
    }

    /** Under the lock: there may be something to write. */
    void wake() {
        if (writerWaits) {
            changed.signal();
        }
    }

    /**
     * Reads and writes until the conversation is over, and closes the transport.
     *
     * @param afterwards is called without the lock, after each read and at the end
     */
    void run(Runnable afterwards) {
        Thread writer = new Thread(this::write, "rsio-writer");
        writer.setDaemon(true);
        writer.start();
        try {
            read(afterwards);
            writer.join(GOODBYE_SECONDS * 1000L);
            transport.patience(LAST_MILLISECONDS);
            ByteBuffer rest = ByteBuffer.allocate(1 << 13);
            while (transport.read(rest.clear()) > 0) {
                // Unread octets would make a reset of the end, which could overtake our goodbye.
            }
        } catch (IOException gone) {
            lost(gone.toString());
        } catch (InterruptedException why) {
            lost("interrupted");
            Thread.currentThread().interrupt();
        } catch (RuntimeException why) { // of the program's code that `afterwards` calls
            lost(why.toString());
            throw why;
        } finally {
            transport.close();
            afterwards.run();
        }
    }

    private void read(Runnable afterwards) throws IOException {
        transport.patience(HELLO_MILLISECONDS);
        int pings = 0;
        boolean patient = false;
        while (true) {
            int count = transport.read(session.room());
            lock.lock();
            try {
                if (count < 0) {
                    session.lost("the peer has closed");
                } else if (count > 0) {
                    session.received(count);
                    pings = 0;
                } else if (pings == PINGS || !session.uses(1)) {
                    if (session.state() == Session.State.GREETING) {
                        session.lost("no hello within 10 s: is that RS.io?");
                    } else if (pings == PINGS) {
                        session.lost("no sign of life for a minute and a half");
                    }
                } else {
                    session.say(new Message(Type.PING));
                    pings++;
                }
                wake();
                if (session.state() == Session.State.CLOSED) {
                    return;
                }
                if (!patient && session.state() == Session.State.OPEN) {
                    patient = true;
                    transport.patience(SILENCE_MILLISECONDS);
                }
            } finally {
                lock.unlock();
            }
            afterwards.run();
        }
    }

    private void lost(String why) {
        lock.lock();
        try {
            session.lost(why);
            wake();
        } finally {
            lock.unlock();
        }
    }

    private void write() {
        Output output = new Output();
        try {
            while (next(output)) {
                transport.write(output.written());
                output.clear();
            }
            transport.end();
        } catch (IOException gone) {
            transport.close(); // the reader hears of it
        }
    }

    /** Waits for something to write; false if nothing more comes. */
    private boolean next(Output output) {
        lock.lock();
        try {
            long patience = TimeUnit.SECONDS.toNanos(GOODBYE_SECONDS);
            while (true) {
                session.fill(output);
                if (output.size() > 0) {
                    return true;
                }
                if (session.state() == Session.State.CLOSED) {
                    return false;
                }
                writerWaits = true;
                if (session.state() != Session.State.LEAVING) {
                    changed.awaitUninterruptibly();
                } else if (patience > 0) {
                    patience = changed.awaitNanos(patience);
                } else {
                    session.lost("goodbye was not answered");
                    transport.close();
                }
                writerWaits = false;
            }
        } catch (InterruptedException why) {
            return false;
        } finally {
            writerWaits = false;
            lock.unlock();
        }
    }
}
