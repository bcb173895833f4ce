package gateway.rsio;

import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;

/** Pauses between attempts. */
class PauseTest {
    private static void grows(Pause pause) {
        for (long most : new long[] {100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000}) {
            long wait = pause.next();
            assertTrue(most / 2 <= wait && wait <= most, wait + " of " + most);
        }
    }

    /** They double, with a half left to chance, up to ten seconds, and begin anew by success. */
    @Test
    void theyGrow() {
        Pause pause = new Pause();
        grows(pause);
        pause.succeeded();
        grows(pause);
    }
}
