/*
 * A hash of what a JSON text says, in whatever order the keys of its objects stand.
 *
 * Filebeat and its kin keep events in Go's maps and encode them at each attempt, and Go
 * walks a map in another order each time: an event that is sent again has other bytes.
 */
package gateway.spark;

import org.apache.spark.sql.catalyst.expressions.XXH64;
import org.apache.spark.unsafe.Platform;

/** One payload. */
public final class Contents extends Scan {

    /** Deeper than this a value is its bytes. */
    private static final int DEEPEST = 64;
    private static final long OBJECT = 0x9E3779B97F4A7C15L;
    private static final long LIST = 0xC2B2AE3D27D4EB4FL;

    private Contents(byte[] bytes) {
        super(bytes);
    }

    /** Equal for equal values; what is no JSON equals only the same bytes. */
    public static long hash(byte[] bytes) {
        Contents scan = new Contents(bytes);
        try {
            scan.blanks();
            return scan.value(0);
        } catch (IndexOutOfBoundsException why) {
            return scan.slice(0, bytes.length);
        } catch (IllegalArgumentException why) {
            return scan.slice(0, bytes.length);
        }
    }

    private long value(int depth) {
        int from = at;
        byte first = bytes[at];
        if (depth == DEEPEST || first != '{' && first != '[') {
            skip();
            return slice(from, at);
        }
        boolean object = first == '{';
        char end = object ? '}' : ']';
        long hash = object ? OBJECT : LIST;
        at++;
        blanks();
        if (bytes[at] == end) {
            at++;
            return hash;
        }
        byte next;
        do {
            blanks();
            if (object) {
                expect('"');
                int key = at;
                string();
                long name = slice(key, at - 1);
                blanks();
                expect(':');
                blanks();
                hash += mixed(name, value(depth + 1)); // a sum has no order
            } else {
                hash = mixed(hash, value(depth + 1));
            }
            blanks();
            next = bytes[at++];
        } while (next == ',');
        if (next != end) {
            throw new IllegalArgumentException();
        }
        return mixed(hash, end);
    }

    private long slice(int from, int to) {
        return XXH64.hashUnsafeBytes(bytes, Platform.BYTE_ARRAY_OFFSET + from, to - from, 42L);
    }

    /** Of two hashes in this order. */
    private static long mixed(long one, long other) {
        long mixed = (one ^ one >>> 32) * OBJECT + other;
        mixed = (mixed ^ mixed >>> 29) * LIST;
        return mixed ^ mixed >>> 32;
    }
}
