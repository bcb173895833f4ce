package gateway.rsio;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;

/**
 * What is written to a connection of HTTP/2: DATA as the peer's windows have room for it, and what
 * the peer is owed.
 *
 * <p>The latter has a thread of its own, so that a peer that takes nothing keeps nobody from
 * reading.
 */
final class Http2Output {
    private static final int OWED_BYTES = 1 << 16;

    private final Transport below;
    private final ReentrantLock lock = new ReentrantLock();
    private final Condition changed = lock.newCondition();
    private final ByteArrayOutputStream owed = new ByteArrayOutputStream();
    private long initial = 65_535;
    private long ofStream = initial;
    private long ofConnection = initial;
    private String shut;
    private boolean closed;

    Http2Output(Transport below) {
        this.below = below;
        Thread paying = new Thread(this::pay, "rsio-http2");
        paying.setDaemon(true);
        paying.start();
    }

    void send(ByteBuffer frames) throws IOException {
        synchronized (below) {
            below.write(frames);
        }
    }

    // What the peer is owed

    void owe(ByteBuffer frame) throws IOException {
        lock.lock();
        try {
            if (owed.size() > OWED_BYTES) {
                throw new IOException("the peer asks, and does not read what it is answered");
            }
            owed.writeBytes(frame.array());
            changed.signalAll();
        } finally {
            lock.unlock();
        }
    }

    private void pay() {
        try {
            for (byte[] frames; (frames = takeOwed()) != null;) {
                send(ByteBuffer.wrap(frames));
            }
        } catch (IOException gone) {
            below.close(); // the reader hears of it
        }
    }

    private byte[] takeOwed() {
        lock.lock();
        try {
            while (owed.size() == 0 && !closed) {
                changed.awaitUninterruptibly();
            }
            byte[] frames = owed.toByteArray();
            owed.reset();
            return closed ? null : frames;
        } finally {
            lock.unlock();
        }
    }

    // Windows

    /** Waits for room as often as it takes. */
    void data(ByteBuffer octets) throws IOException {
        ByteBuffer rest = octets.slice();
        while (rest.hasRemaining()) {
            int count = room(Math.min(rest.remaining(), Http2Frame.MOST_BYTES));
            send(Http2Frame.of(Http2Frame.DATA, 0, Http2Frame.STREAM,
                    rest.slice(rest.position(), count)));
            rest.position(rest.position() + count);
        }
    }

    /** Takes of both windows what is wanted, or what there is. */
    private int room(int wanted) throws IOException {
        lock.lock();
        try {
            while (Math.min(ofStream, ofConnection) <= 0 && shut == null) {
                changed.awaitUninterruptibly();
            }
            int count = (int) Math.min(wanted, Math.min(ofStream, ofConnection));
            if (count <= 0) {
                throw new IOException(shut);
            }
            ofStream -= count;
            ofConnection -= count;
            return count;
        } finally {
            lock.unlock();
        }
    }

    /** The peer has opened a window. */
    void opened(int stream, int octets) throws IOException {
        if (octets == 0) {
            throw Http2Frame.broken("a window that opens by nothing");
        }
        lock.lock();
        try {
            ofStream += stream == 0 ? 0 : octets;
            ofConnection += stream == 0 ? octets : 0;
            grown();
        } finally {
            lock.unlock();
        }
    }

    /** The peer has said how large the stream's window is to be at first. */
    void initial(long octets) throws IOException {
        lock.lock();
        try {
            ofStream += octets - initial;
            initial = octets;
            grown();
        } finally {
            lock.unlock();
        }
    }

    private void grown() throws IOException {
        if (Math.max(initial, Math.max(ofStream, ofConnection)) > Integer.MAX_VALUE) {
            throw Http2Frame.broken("a window of more than 2^31-1");
        }
        changed.signalAll();
    }

    /** A window that is used up will not open any more. */
    void shut(String why) {
        lock.lock();
        try {
            shut = why;
            changed.signalAll();
        } finally {
            lock.unlock();
        }
    }

    void close() {
        lock.lock();
        try {
            closed = true;
            shut("closed");
        } finally {
            lock.unlock();
        }
        below.close();
    }
}
