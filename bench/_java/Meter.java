import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Random;
import java.util.function.LongSupplier;

/** Elements to send, and how many of them there were a second. */
final class Meter {
    private Meter() {}

    /** JSON objects of so many octets; a power of two of them, of text that does not compress. */
    static byte[][] elements(int octets) {
        Random chance = new Random(1);
        byte[][] made = new byte[1 << 15][];
        int room = octets - "{\"n\":1000000000,\"text\":\"\"}".length();
        byte[] some = new byte[room];
        for (int n = 0; n < made.length; n++) {
            chance.nextBytes(some);
            String text = Base64.getEncoder().encodeToString(some).substring(0, room);
            made[n] = ("{\"n\":" + (1_000_000_000 + n) + ",\"text\":\"" + text + "\"}")
                    .getBytes(StandardCharsets.US_ASCII);
        }
        return made;
    }

    /** Says `measuring` after the first seconds, and `measured` after the others. */
    static void measure(String[] seconds, LongSupplier count) throws InterruptedException {
        Thread.sleep((long) (Double.parseDouble(seconds[0]) * 1000));
        long first = count.getAsLong();
        long begin = System.nanoTime();
        say("measuring", "");
        Thread.sleep((long) (Double.parseDouble(seconds[1]) * 1000));
        long events = count.getAsLong() - first;
        double passed = (System.nanoTime() - begin) / 1e9;
        say("measured", ", \"events\": " + events + ", \"seconds\": " + passed);
    }

    static void say(String phase, String more) {
        System.out.println("{\"phase\": \"" + phase + "\"" + more + "}");
    }
}
