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

import java.util.Arrays;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.api.java.UDF1;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;

/** Payload to row: the text, null if it is not UTF-8, then a value for each path. */
public final class Fields implements UDF1 {

    /** Of each character: 1 ends what a string may hold as it is. */
    private static final byte[] STOPS = new byte[256];

    static {
        Arrays.fill(STOPS, 0, 32, (byte) 1);
        STOPS['"'] = 1;
        STOPS['\\'] = 1;
    }

    private final String[] paths;
    private transient Keys root;

    /** Asks for a value by each path: keys joined by dots, nested or as one flat key. */
    public Fields(String[] paths) {
        this.paths = paths;
    }

    public Object call(Object payload) {
        if (payload == null) {
            return null;
        }
        byte[] bytes = (byte[]) payload;
        Object[] row = new Object[1 + paths.length];
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
    }

    private static boolean isText(byte[] bytes) {
        int at = 0;
        int length = bytes.length;
        while (at + 8 <= length) {
            long eight = Platform.getLong(bytes, Platform.BYTE_ARRAY_OFFSET + at);
            if ((eight & 0x8080808080808080L) != 0) {
                return UTF8String.fromBytes(bytes).isValid();
            }
            at += 8;
        }
        while (at < length) {
            if (bytes[at] < 0) {
                return UTF8String.fromBytes(bytes).isValid();
            }
            at++;
        }
        return true;
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

    /** The keys of an object that are asked for. */
    private static final class Keys {

        byte[][] names = new byte[0][];
        Keys[] below = new Keys[0];
        /** Where the value goes; -1: only what is below is asked for. */
        int slot = -1;
        /** All slots from here on, which a key that comes again clears. */
        int[] slots;

        Keys add(String name) {
            byte[] bytes = UTF8String.fromString(name).getBytes();
            Keys old = get(bytes, 0, bytes.length);
            if (old != null) {
                return old;
            }
            int count = names.length;
            byte[][] moreNames = new byte[count + 1][];
            Keys[] moreBelow = new Keys[count + 1];
            System.arraycopy(names, 0, moreNames, 0, count);
            System.arraycopy(below, 0, moreBelow, 0, count);
            moreNames[count] = bytes;
            moreBelow[count] = new Keys();
            names = moreNames;
            below = moreBelow;
            return moreBelow[count];
        }

        /** What is asked for below a key; null: nothing. */
        Keys get(byte[] bytes, int from, int to) {
            int length = to - from;
            for (int n = 0; n < names.length; n++) {
                byte[] name = names[n];
                if (name.length == length && same(name, bytes, from, length)) {
                    return below[n];
                }
            }
            return null;
        }

        private static boolean same(byte[] name, byte[] bytes, int from, int length) {
            // The last one first: keys that are as long often begin alike.
            for (int n = length - 1; n >= 0; n--) {
                if (name[n] != bytes[from + n]) {
                    return false;
                }
            }
            return true;
        }

        void close() {
            int count = slot < 0 ? 0 : 1;
            for (int n = 0; n < below.length; n++) {
                below[n].close();
                count += below[n].slots.length;
            }
            slots = new int[count];
            int at = 0;
            if (slot >= 0) {
                slots[at++] = slot;
            }
            for (int n = 0; n < below.length; n++) {
                int[] some = below[n].slots;
                System.arraycopy(some, 0, slots, at, some.length);
                at += some.length;
            }
        }
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
                found[slots[n]] = null; // of one key twice the last one counts
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
            byte one = bytes[at];
            while (one != ',' && one != '}' && one != ']' && one > ' ') {
                at++;
                one = bytes[at];
            }
        }

        /** From behind one quote to behind the next; whether it has no escapes. */
        private boolean string() {
            boolean plain = true;
            while (true) {
                while (STOPS[bytes[at] & 255] == 0) {
                    at++;
                }
                byte stop = bytes[at++];
                if (stop == '"') {
                    return plain;
                }
                if (stop != '\\') {
                    throw new IllegalArgumentException();
                }
                plain = false;
                at++;
            }
        }

        private void blanks() {
            byte one = bytes[at];
            while (one == ' ' || one == '\n' || one == '\t' || one == '\r') {
                at++;
                one = bytes[at];
            }
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
                byte one = bytes[n++];
                if (one != '\\') {
                    said[count++] = one;
                    continue;
                }
                one = bytes[n++];
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
