package gateway.rsio;

import java.nio.ByteBuffer;
import java.security.SecureRandom;
import java.util.ArrayList;
import java.util.List;

/**
 * Elements to publish, kept until the subscriber has them safe; one life of a sender.
 *
 * <p>What was sent on one connection and not confirmed is sent again on the next. A gateway that
 * knows our name says behind which element it goes on, and so has each once.
 */
final class Outbox {
    private static final int INSTANCE_BYTES = 8;
    private static final SecureRandom RANDOM = new SecureRandom();

    /** Of this life; empty once a gateway that does not ask for it placed us. */
    private byte[] instance = new byte[INSTANCE_BYTES];
    private boolean resumed;
    private boolean placed;
    /** How many elements of this name the subscriber had before the first of these. */
    private long first;
    private long confirmed;
    /** How many are safe or on their way. */
    private long sent;
    /** How many were sent on earlier streams. */
    private long reached;
    /** Element n is at n modulo the length, a power of two. */
    private ByteBuffer[] ring = new ByteBuffer[64];
    private int size;

    Outbox() {
        RANDOM.nextBytes(instance);
    }

    byte[] instance() {
        return instance;
    }

    /** A gateway that was told of the instance has asked us to go on. */
    boolean resumed() {
        return resumed;
    }

    long confirmed() {
        return confirmed;
    }

    /** How many elements are not confirmed. */
    int size() {
        return size;
    }

    private int place(long number) {
        return (int) (number & ring.length - 1);
    }

    void add(ByteBuffer element) {
        if (size == ring.length) {
            ByteBuffer[] larger = new ByteBuffer[size * 2];
            for (long n = confirmed; n < confirmed + size; n++) {
                larger[(int) (n & larger.length - 1)] = ring[place(n)];
            }
            ring = larger;
        }
        ring[place(confirmed + size)] = element;
        size++;
    }

    long unsent() {
        return confirmed + size - sent;
    }

    /** The next element to send; null if there is none. */
    ByteBuffer next() {
        return unsent() == 0 ? null : ring[place(sent++)];
    }

    /** The first `number` are safe; a smaller number than before is ignored. */
    void confirm(long number) {
        while (confirmed < number && size > 0) {
            ring[place(confirmed)] = null;
            confirmed++;
            size--;
        }
        sent = Math.max(sent, confirmed);
    }

    /**
     * Of a stream that did not ask to resume: the first `count` sent on it are safe, which began
     * behind `base` elements. Of one that did, see {@link #stored}.
     */
    void demanded(long base, long count) {
        confirm(Math.min(Session.sum(base, count), sent));
    }

    /** The subscriber has the publisher's first `offset` elements safe; whether it can be so. */
    boolean stored(long offset) {
        if (offset - first > sent) {
            return false;
        }
        confirm(offset - first);
        return true;
    }

    /** As {@link #stored}, counted from the beginning of a stream. */
    boolean storedOfStream(long base, long count) {
        if (Session.sum(base, count) > sent) {
            return false;
        }
        confirm(base + count);
        return true;
    }

    /**
     * A new stream begins. With an offset the subscriber says how many elements it has.
     *
     * @param announced it was told the instance
     * @return why it can not go on there, or null
     */
    String rewind(long offset, boolean announced) {
        long before = Math.max(reached, sent);
        if (offset != Session.NO_OFFSET) {
            if (!placed) {
                placed = true;
                first = offset - confirmed;
            }
            long here = offset - first;
            if (here < confirmed || here > before) {
                String who = here < confirmed
                        ? "this gateway has forgotten the name, or is not the one before"
                        : "another sender has this name";
                return "asked to go on behind " + here + " elements, " + confirmed + " to "
                        + before + " are possible: " + who;
            }
            confirm(here);
            resumed = announced && instance.length > 0;
            if (!announced) {
                instance = new byte[0];
            }
        }
        reached = before;
        sent = confirmed;
        return null;
    }

    /** The octets of the largest element that is not confirmed. */
    int largest() {
        return unconfirmed().stream().mapToInt(ByteBuffer::remaining).max().orElse(0);
    }

    /** What is not confirmed, in order. */
    List<ByteBuffer> unconfirmed() {
        List<ByteBuffer> found = new ArrayList<>(size);
        for (long n = confirmed; n < confirmed + size; n++) {
            found.add(ring[place(n)]);
        }
        return found;
    }
}
