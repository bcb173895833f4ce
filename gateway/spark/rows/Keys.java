/*
 * Which keys of a payload's objects lead to a value that is asked for: a tree of names.
 */
package gateway.spark;

import java.util.Arrays;
import org.apache.spark.unsafe.types.UTF8String;

/** The keys of an object that are asked for. */
public final class Keys {

    public byte[][] names = new byte[0][];
    private Keys[] below = new Keys[0];
    /** By the length of a name: which names have it. */
    private int[][] lengths;
    /** Where the value goes; none: only what is below is asked for. */
    public int[] ends = new int[0];
    /** A column is asked for below, so that an object here is no value. */
    public boolean through;
    /** All slots from here on, which a key that comes again clears. */
    public int[] slots;

    /** The value of this key is asked for. */
    public void take(int slot) {
        ends = Arrays.copyOf(ends, ends.length + 1);
        ends[ends.length - 1] = slot;
    }

    /** What is asked for below a key. */
    public Keys add(String name) {
        byte[] bytes = UTF8String.fromString(name).getBytes();
        for (int n = 0; n < names.length; n++) {
            if (Arrays.equals(names[n], bytes)) {
                return below[n];
            }
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
    public Keys get(byte[] bytes, int from, int to) {
        int length = to - from;
        if (length < lengths.length) {
            int[] some = lengths[length];
            for (int n = 0; n < some.length; n++) {
                if (same(names[some[n]], bytes, from, length)) {
                    return below[some[n]];
                }
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

    public void close() {
        int count = ends.length;
        for (int n = 0; n < below.length; n++) {
            below[n].close();
            count += below[n].slots.length;
        }
        int longest = -1;
        for (int n = 0; n < names.length; n++) {
            longest = Math.max(longest, names[n].length);
        }
        lengths = new int[longest + 1][];
        for (int length = 0; length <= longest; length++) {
            int[] some = new int[names.length];
            int alike = 0;
            for (int n = 0; n < names.length; n++) {
                if (names[n].length == length) {
                    some[alike++] = n;
                }
            }
            lengths[length] = Arrays.copyOf(some, alike);
        }
        slots = Arrays.copyOf(ends, count);
        int at = ends.length;
        for (int n = 0; n < below.length; n++) {
            int[] some = below[n].slots;
            System.arraycopy(some, 0, slots, at, some.length);
            at += some.length;
        }
    }
}
