/*
 * The parts of a JSON text: where a value ends, whether a string has escapes.
 *
 * The payload was checked before it came here; this does not check it again.
 *
 * Janino compiles it: no generics, no lambdas, no switch on strings.  Each class has a
 * loader of its own, so that what another one uses is public.
 */
package gateway.spark;

import java.nio.ByteOrder;
import java.util.Arrays;
import org.apache.spark.unsafe.Platform;

/**
 * One pass over a payload.  Reading behind its end raises IndexOutOfBounds; what can
 * be no JSON raises IllegalArgument.
 */
public class Scan {

    /** Of each character: 1 ends what a string may hold as it is. */
    private static final byte[] STOPS = new byte[256];

    static {
        Arrays.fill(STOPS, 0, 32, (byte) 1);
        STOPS['"'] = 1;
        STOPS['\\'] = 1;
    }

    /** The highest bit of each of eight bytes, the lowest, and some characters. */
    public static final long HIGH = 0x8080808080808080L;
    private static final long LOW = 0x0101010101010101L;
    private static final long BLANKS = LOW * ' ';
    private static final long QUOTES = LOW * '"';
    public static final long BACKSLASHES = LOW * '\\';
    private static final boolean LITTLE =
        ByteOrder.nativeOrder() == ByteOrder.LITTLE_ENDIAN;

    public final byte[] bytes;
    public int at;

    public Scan(byte[] bytes) {
        this.bytes = bytes;
    }

    /** Eight bytes from there on, the first one lowest. */
    public static long eight(byte[] bytes, int at) {
        long found = Platform.getLong(bytes, Platform.BYTE_ARRAY_OFFSET + at);
        return LITTLE ? found : Long.reverseBytes(found);
    }

    /** The highest bits of bytes that are 0; above the lowest one others may be set. */
    public static long zeros(long eight) {
        return (eight - LOW) & ~eight & HIGH;
    }

    /** Where the first byte is whose highest bit is set. */
    public static int first(long bits) {
        return Long.numberOfTrailingZeros(bits) >>> 3;
    }

    /** Moves behind a value, however deep it is: what is too deep has a flaw by then. */
    public void skip() {
        int depth = 0;
        do {
            byte one = bytes[at++];
            if (one == '"') {
                string();
            } else if (one == '{' || one == '[') {
                depth++;
            } else if (one == '}' || one == ']') {
                depth--;
            } else if (depth == 0) {
                scalar();
            }
        } while (depth > 0);
        if (depth < 0) {
            throw new IllegalArgumentException();
        }
    }

    private void scalar() {
        int n = at;
        byte one = bytes[n];
        while (one != ',' && one != '}' && one != ']' && one > ' ') {
            one = bytes[++n];
        }
        at = n;
    }

    /** From behind one quote to behind the next; whether it has no escapes. */
    public boolean string() {
        boolean plain = true;
        int n = at;
        int last = bytes.length - 8;
        while (true) {
            while (n <= last) {
                long some = eight(bytes, n);
                long stops = zeros(some ^ QUOTES) | zeros(some ^ BACKSLASHES)
                    | (some - BLANKS) & ~some & HIGH;
                if (stops != 0) {
                    n += first(stops);
                    if (bytes[n] == '"') {
                        at = n + 1;
                        return plain;
                    }
                    break;
                }
                n += 8;
            }
            while (STOPS[bytes[n] & 255] == 0) {
                n++;
            }
            byte stop = bytes[n++];
            if (stop == '"') {
                at = n;
                return plain;
            }
            if (stop != '\\') {
                throw new IllegalArgumentException();
            }
            plain = false;
            n++;
        }
    }

    public void blanks() {
        int n = at;
        byte one = bytes[n];
        while (one <= ' '
                && (one == ' ' || one == '\n' || one == '\t' || one == '\r')) {
            one = bytes[++n];
        }
        at = n;
    }

    public void expect(char wanted) {
        if (bytes[at++] != wanted) {
            throw new IllegalArgumentException();
        }
    }
}
