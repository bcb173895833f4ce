/*
 * Values of a JSON payload by their paths, in one pass over its bytes.
 *
 * Runs in Spark's Java as a function of a row: `gateway/spark/fields.py` compiles it when
 * a job starts.  Spark's own `from_json` decodes the payload to characters, builds a
 * parser with 12 KiB of buffers for every row, and makes an object of every value; here
 * a value without escapes is a slice of the payload.
 *
 * The payload was checked before it came here; this does not check it again, but ends
 * well whatever it is: where the text breaks off or is none, nothing was found.
 *
 * Janino compiles it: no generics, no lambdas, no switch on strings.
 */
package gateway.spark;

import java.nio.ByteOrder;
import java.util.Arrays;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.api.java.UDF1;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Payload to row: the text, null if it is not UTF-8, then a value for each path, then
 * for each path that is an instant its microseconds since 1970, null if it is not
 * written as most write it.
 */
public final class Fields implements UDF1 {

    /** Of each character: 1 ends what a string may hold as it is. */
    private static final byte[] STOPS = new byte[256];

    static {
        Arrays.fill(STOPS, 0, 32, (byte) 1);
        STOPS['"'] = 1;
        STOPS['\\'] = 1;
    }

    /** The highest bit of each of eight bytes, the lowest, and some characters. */
    private static final long HIGH = 0x8080808080808080L;
    private static final long LOW = 0x0101010101010101L;
    private static final long BLANKS = LOW * ' ';
    private static final long QUOTES = LOW * '"';
    private static final long BACKSLASHES = LOW * '\\';
    private static final boolean LITTLE =
        ByteOrder.nativeOrder() == ByteOrder.LITTLE_ENDIAN;

    private final String[] paths;
    private final int[] instants;
    private transient Keys root;

    /**
     * Asks for a value by each path: keys joined by dots, nested or as one flat key.
     * The paths with the numbers *instants* are of instants.
     */
    public Fields(String[] paths, int[] instants) {
        this.paths = paths;
        this.instants = instants;
    }

    public Object call(Object payload) {
        if (payload == null) {
            return null;
        }
        byte[] bytes = (byte[]) payload;
        Object[] row = new Object[1 + paths.length + instants.length];
        if (isText(bytes)) {
            row[0] = UTF8String.fromBytes(bytes);
            find(bytes, row);
        }
        return RowFactory.create(row);
    }

    private void find(byte[] bytes, Object[] row) {
        if (root == null) {
            root = keys();
        }
        Object[] found = new Object[2 * paths.length];
        Scan scan = new Scan(bytes, found);
        try {
            scan.document(root);
        } catch (IndexOutOfBoundsException why) {
            return;
        } catch (IllegalArgumentException why) {
            return;
        }
        for (int n = 0; n < paths.length; n++) {
            Object nested = found[2 * n];
            row[1 + n] = nested != null ? nested : found[2 * n + 1];
        }
        for (int n = 0; n < instants.length; n++) {
            Object text = row[1 + instants[n]];
            row[1 + paths.length + n] = text == null ? null : Instants.micros((UTF8String) text);
        }
    }

    private static boolean isText(byte[] bytes) {
        int at = 0;
        int length = bytes.length;
        while (at + 16 <= length) {
            if (((eight(bytes, at) | eight(bytes, at + 8)) & HIGH) != 0) {
                return UTF8String.fromBytes(bytes).isValid();
            }
            at += 16;
        }
        while (at < length) {
            if (bytes[at] < 0) {
                return UTF8String.fromBytes(bytes).isValid();
            }
            at++;
        }
        return true;
    }

    /** Eight bytes from there on, the first one lowest. */
    private static long eight(byte[] bytes, int at) {
        long found = Platform.getLong(bytes, Platform.BYTE_ARRAY_OFFSET + at);
        return LITTLE ? found : Long.reverseBytes(found);
    }

    /** The highest bits of bytes that are 0; above the lowest one others may be set. */
    private static long zeros(long eight) {
        return (eight - LOW) & ~eight & HIGH;
    }

    /** Where the first byte is whose highest bit is set. */
    private static int first(long bits) {
        return Long.numberOfTrailingZeros(bits) >>> 3;
    }

    /** Slot 2n is for path n written nested, 2n + 1 for the same as one flat key. */
    private Keys keys() {
        Keys all = new Keys();
        for (int n = 0; n < paths.length; n++) {
            String path = paths[n];
            Keys at = all;
            int from = 0;
            int dot = path.indexOf('.');
            while (dot >= 0) {
                at = at.add(path.substring(from, dot));
                from = dot + 1;
                dot = path.indexOf('.', from);
            }
            at.add(path.substring(from)).slot = 2 * n;
            if (from > 0) {
                all.add(path).slot = 2 * n + 1;
            }
        }
        all.close();
        return all;
    }

    /**
     * One pass over a payload.  Reading behind its end raises IndexOutOfBounds; what can
     * be no JSON raises IllegalArgument.
     */
    private static final class Scan {

        private final byte[] bytes;
        private final Object[] found;
        private int at;

        Scan(byte[] bytes, Object[] found) {
            this.bytes = bytes;
            this.found = found;
        }

        /** An object, or the first of a list of objects. */
        void document(Keys keys) {
            blanks();
            if (bytes[at] == '[') {
                at++;
                blanks();
            }
            if (bytes[at] == '{') {
                at++;
                object(keys);
            }
        }

        /** From behind its brace on.  Goes only as deep as keys are asked for. */
        private void object(Keys keys) {
            blanks();
            if (bytes[at] == '}') {
                at++;
                return;
            }
            byte next;
            do {
                blanks();
                expect('"');
                int from = at;
                boolean plain = string();
                Keys asked;
                if (plain) {
                    asked = keys.get(bytes, from, at - 1);
                } else {
                    byte[] key = unescaped(from, at - 1).getBytes();
                    asked = keys.get(key, 0, key.length);
                }
                blanks();
                expect(':');
                blanks();
                if (asked == null) {
                    skip();
                } else {
                    value(asked);
                }
                blanks();
                next = bytes[at++];
            } while (next == ',');
            if (next != '}') {
                throw new IllegalArgumentException();
            }
        }

        private void value(Keys asked) {
            int[] slots = asked.slots;
            for (int n = 0; n < slots.length; n++) {
                if (found[slots[n]] != null) {
                    found[slots[n]] = null; // of one key twice the last one counts
                }
            }
            byte first = bytes[at];
            if (first == '{' && asked.names.length > 0) {
                at++;
                object(asked);
                return;
            }
            int from = at;
            if (first == '"') {
                at++;
                boolean plain = string();
                if (asked.slot >= 0) {
                    found[asked.slot] =
                        plain ? slice(from + 1, at - 1) : unescaped(from + 1, at - 1);
                }
                return;
            }
            skip();
            if (asked.slot >= 0 && first != 'n') {
                boolean nested = first == '{' || first == '[';
                found[asked.slot] = nested ? compact(from, at) : slice(from, at);
            }
        }

        /** Moves behind a value, however deep it is. */
        private void skip() {
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
        private boolean string() {
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

        private void blanks() {
            int n = at;
            byte one = bytes[n];
            while (one <= ' '
                    && (one == ' ' || one == '\n' || one == '\t' || one == '\r')) {
                one = bytes[++n];
            }
            at = n;
        }

        private void expect(char wanted) {
            if (bytes[at++] != wanted) {
                throw new IllegalArgumentException();
            }
        }

        private UTF8String slice(int from, int to) {
            return UTF8String.fromBytes(bytes, from, to - from);
        }

        /** A list or an object without the blanks between its parts. */
        private UTF8String compact(int from, int to) {
            byte[] kept = new byte[to - from];
            int count = 0;
            boolean inside = false;
            for (int n = from; n < to; n++) {
                byte one = bytes[n];
                if (inside && one == '\\') {
                    kept[count++] = one;
                    one = bytes[++n];
                } else if (one == '"') {
                    inside = !inside;
                }
                if (inside || one < 0 || one > ' ') {
                    kept[count++] = one;
                }
            }
            return UTF8String.fromBytes(kept, 0, count);
        }

        /** What a string with escapes says; it is never longer than it is written. */
        private UTF8String unescaped(int from, int to) {
            byte[] said = new byte[to - from];
            int count = 0;
            int n = from;
            while (n < to) {
                int run = backslash(n, to);
                System.arraycopy(bytes, n, said, count, run - n);
                count += run - n;
                if (run == to) {
                    break;
                }
                n = run + 1;
                byte one = bytes[n++];
                if (one != 'u') {
                    said[count++] = escaped(one);
                    continue;
                }
                int point = hex(n, to);
                n += 4;
                if (point >= 0xD800 && point < 0xDC00 && n + 6 <= to
                        && bytes[n] == '\\' && bytes[n + 1] == 'u') {
                    int low = hex(n + 2, to);
                    if (low >= 0xDC00 && low < 0xE000) {
                        point = 0x10000 + ((point - 0xD800) << 10) + (low - 0xDC00);
                        n += 6;
                    }
                }
                count = put(point, said, count);
            }
            return UTF8String.fromBytes(said, 0, count);
        }

        /** Where the next backslash is, or the end. */
        private int backslash(int from, int to) {
            int n = from;
            while (n + 8 <= to) {
                long found = zeros(eight(bytes, n) ^ BACKSLASHES);
                if (found != 0) {
                    return n + first(found);
                }
                n += 8;
            }
            while (n < to && bytes[n] != '\\') {
                n++;
            }
            return n;
        }

        private static byte escaped(byte one) {
            switch (one) {
                case '"':
                case '\\':
                case '/':
                    return one;
                case 'n':
                    return '\n';
                case 't':
                    return '\t';
                case 'r':
                    return '\r';
                case 'b':
                    return '\b';
                case 'f':
                    return '\f';
                default:
                    throw new IllegalArgumentException();
            }
        }

        private int hex(int from, int to) {
            int value = 0;
            for (int n = from; n < from + 4; n++) {
                int digit = n < to ? Character.digit((char) bytes[n], 16) : -1;
                if (digit < 0) {
                    throw new IllegalArgumentException();
                }
                value = value << 4 | digit;
            }
            return value;
        }

        /** In UTF-8; half a surrogate pair is a question mark, as Java has it. */
        private static int put(int point, byte[] said, int count) {
            if (point >= 0xD800 && point < 0xE000) {
                point = '?';
            }
            if (point < 0x80) {
                said[count++] = (byte) point;
            } else if (point < 0x800) {
                said[count++] = (byte) (0xC0 | point >> 6);
                said[count++] = (byte) (0x80 | point & 63);
            } else if (point < 0x10000) {
                said[count++] = (byte) (0xE0 | point >> 12);
                said[count++] = (byte) (0x80 | point >> 6 & 63);
                said[count++] = (byte) (0x80 | point & 63);
            } else {
                said[count++] = (byte) (0xF0 | point >> 18);
                said[count++] = (byte) (0x80 | point >> 12 & 63);
                said[count++] = (byte) (0x80 | point >> 6 & 63);
                said[count++] = (byte) (0x80 | point & 63);
            }
            return count;
        }
    }
}
