package gateway.rsio;

import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;

/** The time between two attempts to connect: it grows while they fail. */
final class Pause {
    private static final long FIRST_MILLISECONDS = 50;
    private static final long LAST_MILLISECONDS = 5_000;

    private final CountDownLatch ended = new CountDownLatch(1);
    private volatile long milliseconds = FIRST_MILLISECONDS;

    void succeeded() {
        milliseconds = FIRST_MILLISECONDS;
    }

    /** Whoever waits, or comes to wait, goes on at once. */
    void end() {
        ended.countDown();
    }

    void pause() {
        long most = milliseconds;
        milliseconds = Math.min(most * 2, LAST_MILLISECONDS);
        try {
            // Half of it is left to chance, so that a thousand clients do not come at once.
            long wait = most / 2 + ThreadLocalRandom.current().nextLong(most / 2 + 1);
            ended.await(wait, TimeUnit.MILLISECONDS);
        } catch (InterruptedException why) {
            Thread.currentThread().interrupt();
        }
    }
}
