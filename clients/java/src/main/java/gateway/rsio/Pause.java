package gateway.rsio;

import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;

/**
 * The time between two attempts to connect, as all senders of the gateway's own wait: it grows
 * until something is acknowledged, or comes. A hello alone is no success.
 */
final class Pause {
    private static final long FIRST_MILLISECONDS = 100;
    private static final long LAST_MILLISECONDS = 10_000;

    private final CountDownLatch ended = new CountDownLatch(1);
    private volatile long milliseconds = FIRST_MILLISECONDS;

    void succeeded() {
        milliseconds = FIRST_MILLISECONDS;
    }

    /** Whoever waits, or comes to wait, goes on at once. */
    void end() {
        ended.countDown();
    }

    /** How long to wait now. */
    long next() {
        long most = milliseconds;
        milliseconds = Math.min(most * 2, LAST_MILLISECONDS);
        // Half of it is left to chance, so that a thousand clients do not come at once.
        return most / 2 + ThreadLocalRandom.current().nextLong(most / 2 + 1);
    }

    void pause() {
        try {
            ended.await(next(), TimeUnit.MILLISECONDS);
        } catch (InterruptedException why) {
            Thread.currentThread().interrupt();
        }
    }
}
