/*
 * Values of a JSON payload by their paths, in one pass over its bytes.
 *
 * Runs in Spark's Java as a function of a row: `gateway/spark/rows/fields.py` compiles it when
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

import java.util.ArrayList;
import java.util.Arrays;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.api.java.UDF1;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Payload to row: the text, null if it is not UTF-8, then a value for each path, then
 * for each path that is an instant its microseconds since 1970, null if Spark must read it,
 * then for each path that is a list its elements, null if it is an object, then, where it is asked for, a hash of what the payload says, then, where there are rules,
 * a number whose bit N says that all conditions of rule N hold.
 */
public final class Fields implements UDF1 {

    /** Bytes that a payload may have which others are compared with. */
    private static final int MOST_KNOWN_BYTES = 1 << 16;
    /** Payloads in a row that are unlike the known one before it is given up. */
    private static final int MOST_UNLIKE = 2;
    /** Payloads that are read with no look at others, at most, before one is known again. */
    private static final int MOST_PLAIN = 63;

    private final String[] keys;
    private final int[] depths;
    private final int[] instants;
    private final int[] lists;
    private final boolean contents;
    private final int columns;
    /** Of each condition its rule, its path, and what the value is to be. */
    private final int[] rules;
    private final int[] looked;
    private final Is[] wanted;
    private transient Keys root;
    /** Where the slots of each path begin, and where those of the last one end. */
    private transient int[] slots;
    /** What others are compared with; null: nothing yet. */
    private transient Known known;
    /** Payloads in a row that were unlike it. */
    private transient int unlike;
    /** Payloads to be read yet before one is known again, and after the next one in vain. */
    private transient int plain;
    private transient int nextPlain;

    /**
     * Asks for a value by each path.  *keys* are those of all paths, *depths* says how
     * many each path has.  The paths with the numbers *instants* are of instants, those with the
     * numbers *lists* are of lists, and those behind the first *columns* are asked for by rules alone.  A rule has the
     * conditions that name it in *rules*, each of the path in *looked*.
     */
    public Fields(String[] keys, int[] depths, int[] instants, int[] lists, Boolean contents,
            Integer columns, int[] rules, int[] looked, String[] wanted, boolean[] expressions) throws Exception {
        this.keys = keys;
        this.depths = depths;
        this.instants = instants;
        this.lists = lists;
        this.contents = contents.booleanValue();
        this.columns = columns.intValue();
        this.rules = rules;
        this.looked = looked;
        this.wanted = new Is[wanted.length];
        for (int n = 0; n < wanted.length; n++) {
            this.wanted[n] = new Is(wanted[n], Boolean.valueOf(expressions[n]));
        }
    }

    public Object call(Object payload) {
        if (payload == null) {
            return null;
        }
        byte[] bytes = (byte[]) payload;
        int values = 1 + depths.length + instants.length + lists.length;
        int size = contents ? values + 1 : values;
        Object[] row = new Object[rules.length > 0 ? size + 1 : size];
        if (isText(bytes)) {
            row[0] = UTF8String.fromBytes(bytes);
            find(bytes, row);
        }
        if (contents) {
            row[values] = Long.valueOf(Contents.hash(bytes));
        }
        return RowFactory.create(row);
    }

    private void find(byte[] bytes, Object[] row) {
        if (root == null) {
            prepare();
        }
        int[] begins = slots;
        int paths = depths.length;
        try {
            Find scan = read(bytes);
            Object[] found = scan.found;
            byte[] kinds = scan.kinds;
            for (int n = 0; n < paths; n++) {
                int slot = begins[n];
                while (found[slot] == null && slot + 1 < begins[n + 1]) {
                    slot++;
                }
                row[1 + n] = found[slot];
            }
            for (int n = 0; n < instants.length; n++) {
                Object text = row[1 + instants[n]];
                row[1 + paths + n] = text == null ? null : Instants.micros((UTF8String) text);
            }
            for (int n = 0; n < lists.length; n++) {
                row[1 + paths + instants.length + n] = elements(lists[n], begins, found, kinds);
            }
            if (rules.length > 0) {
                row[row.length - 1] = Long.valueOf(judged(begins, found, kinds));
            }
        } catch (IndexOutOfBoundsException why) {
            return;
        } catch (IllegalArgumentException why) {
            return;
        }
    }

    /** What a payload says: by what the known one said, where it is as that was. */
    private Find read(byte[] bytes) {
        Known one = known;
        if (one != null && unlike < MOST_UNLIKE) {
            byte[] kinds = one.kinds == null ? null : (byte[]) one.kinds.clone();
            Find scan = new Find(bytes, (Object[]) one.found.clone(), kinds, null);
            int differ = scan.differ(one);
            if (differ >= 0) {
                nextPlain = 0;
                unlike = differ * 4 > one.count ? unlike + 1 : 0;
                return scan;
            }
            unlike++;
            if (unlike == MOST_UNLIKE) {
                readPlain();
            }
            return scan(bytes, null);
        }
        if (bytes.length > MOST_KNOWN_BYTES || plain > 0) {
            plain = Math.max(0, plain - 1);
            return scan(bytes, null);
        }
        Known next = new Known(bytes, slots[depths.length]);
        readPlain();
        Find scan = scan(bytes, next);
        if (next.end(scan.found, scan.kinds)) {
            known = next;
            unlike = 0;
            plain = 0;
        }
        return scan;
    }

    /** Have payloads read with no look at others for a while: each time for longer. */
    private void readPlain() {
        plain = nextPlain;
        nextPlain = Math.min(2 * nextPlain + 1, MOST_PLAIN);
    }

    private Find scan(byte[] bytes, Known next) {
        int count = slots[depths.length];
        byte[] kinds = rules.length + lists.length > 0 ? new byte[count] : null;
        Find scan = new Find(bytes, new Object[count], kinds, next);
        scan.document(root);
        return scan;
    }

    private long judged(int[] begins, Object[] found, byte[] kinds) {
        long holds = -1L;
        for (int n = 0; n < rules.length; n++) {
            long mine = 1L << rules[n];
            if ((holds & mine) != 0 && !holds(n, begins, found, kinds)) {
                holds &= ~mine;
            }
        }
        return holds;
    }

    /** The elements of a list, or a single value; null if it is an object, or nothing. */
    private static Object[] elements(int path, int[] begins, Object[] found, byte[] kinds) {
        int end = begins[path + 1];
        for (int slot = begins[path]; slot < end; slot++) {
            if (found[slot] == null) {
                continue;
            }
            if (kinds[slot] == '[') {
                byte[] list = ((UTF8String) found[slot]).getBytes();
                return new Find(list, null, null, null).elements();
            }
            return kinds[slot] == '{' ? null : new Object[] {found[slot]};
        }
        return null;
    }

    /** Of a list one of its elements; an object is no value. */
    private boolean holds(int n, int[] begins, Object[] found, byte[] kinds) {
        int end = begins[looked[n] + 1];
        for (int slot = begins[looked[n]]; slot < end; slot++) {
            if (found[slot] == null || kinds[slot] == '{') {
                continue;
            }
            UTF8String value = (UTF8String) found[slot];
            if (kinds[slot] != '[') {
                return wanted[n].of(value);
            }
            return new Find(value.getBytes(), null, null, null).any(wanted[n]);
        }
        return false;
    }

    private static boolean isText(byte[] bytes) {
        int at = 0;
        int length = bytes.length;
        while (at + 16 <= length) {
            if (((Scan.eight(bytes, at) | Scan.eight(bytes, at + 8)) & Scan.HIGH) != 0) {
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

    /** Each way to write a path has a slot; of a path the first that is filled counts. */
    private void prepare() {
        Keys all = new Keys();
        int[] begins = new int[depths.length + 1];
        int from = 0;
        for (int n = 0; n < depths.length; n++) {
            begins[n + 1] = begins[n] + (1 << depths[n] - 1);
            add(all, from, from + depths[n], begins[n], n < columns);
            from += depths[n];
        }
        all.close();
        slots = begins;
        root = all;
    }

    /**
     * The keys from *from* to *to* below an object, in each way that dots may join some
     * that follow each other: the shortest first keys have the first slots.
     */
    private void add(Keys above, int from, int to, int slot, boolean column) {
        above.through |= column;
        String name = keys[from];
        for (int next = from + 1; next < to; next++) {
            add(above.add(name), next, to, slot, column);
            slot += 1 << to - next - 1;
            name = name + '.' + keys[next];
        }
        above.add(name).take(slot);
    }

    /** Puts the values that are asked for where they go. */
    private static final class Find extends Scan {

        private final Object[] found;
        /** How the value in each slot begins; null: nobody asks. */
        private final byte[] kinds;
        /** What others will be compared with; null: nothing. */
        private final Known kept;

        Find(byte[] bytes, Object[] found, byte[] kinds, Known kept) {
            super(bytes);
            this.found = found;
            this.kinds = kinds;
            this.kept = kept;
        }

        /**
         * Reads the values that are not as in another payload, whose values are there already.
         * How many these are; -1: what stands between values differs as well.
         */
        int differ(Known other) {
            byte[] theirs = other.bytes;
            int read = 0;
            int value = 0;
            int there = 0; // all before is alike, or was read
            int ahead = 0; // bytes that the same has before it here, and not there
            while (true) {
                int alike = Arrays.mismatch(
                        theirs, there, theirs.length, bytes, there + ahead, bytes.length);
                if (alike < 0) {
                    return read;
                }
                there += alike;
                while (value < other.count && other.to[value] < there) {
                    value++;
                }
                if (value == other.count || other.from[value] > there) {
                    return -1;
                }
                at = other.from[value] + ahead;
                blanks();
                Keys asked = other.asked[value];
                if (asked == null) {
                    skip();
                } else if (bytes[at] == '{' && asked.names.length > 0) {
                    return -1;
                } else {
                    value(asked);
                }
                there = other.to[value++];
                ahead = at - there;
                read++;
            }
        }

        /** Whether one of a list without blanks, that is no list and no object, is it. */
        boolean any(Is wanted) {
            at = 1;
            int left = wanted.most();
            if (bytes[at] == ']') {
                return false;
            }
            do {
                byte first = bytes[at];
                UTF8String one = element();
                if (one != null && first != '{' && first != '[') {
                    left -= one.numBytes();
                    if (left < 0) {
                        return false;
                    }
                    if (wanted.of(one)) {
                        return true;
                    }
                }
            } while (bytes[at++] == ',');
            return false;
        }

        /** What a list without blanks has in it, as texts; null is null. */
        Object[] elements() {
            at = 1;
            ArrayList all = new ArrayList();
            if (bytes[at] != ']') {
                do {
                    all.add(element());
                } while (bytes[at++] == ',');
            }
            return all.toArray();
        }

        private UTF8String element() {
            int from = at;
            byte first = bytes[at];
            if (first == '"') {
                at++;
                boolean plain = string();
                return plain ? slice(from + 1, at - 1) : unescaped(from + 1, at - 1);
            }
            skip();
            return first == 'n' ? null : slice(from, at);
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
                    from = at;
                    skip();
                    if (kept != null) {
                        kept.addValue(from, at, null);
                    }
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
            int from = at;
            if (first == '{' && asked.names.length > 0) {
                if (kept != null) {
                    kept.addObject(asked);
                }
                at++;
                object(asked);
                if (asked.ends.length > 0 && !asked.through) {
                    put(asked, compact(from, at), first);
                    if (kept != null) {
                        kept.addWholeObject();
                    }
                }
                return;
            }
            if (first == '"') {
                at++;
                boolean plain = string();
                if (asked.ends.length > 0) {
                    put(asked, plain ? slice(from + 1, at - 1) : unescaped(from + 1, at - 1), first);
                }
            } else {
                skip();
                if (asked.ends.length > 0 && first != 'n') {
                    boolean nested = first == '{' || first == '[';
                    put(asked, nested ? compact(from, at) : slice(from, at), first);
                }
            }
            if (kept != null) {
                kept.addValue(from, at, asked);
            }
        }

        private void put(Keys asked, UTF8String value, byte first) {
            int[] ends = asked.ends;
            for (int n = 0; n < ends.length; n++) {
                found[ends[n]] = value;
                if (kinds != null) {
                    kinds[ends[n]] = first;
                }
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
