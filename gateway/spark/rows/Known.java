/*
 * A payload that was read, and where its values are: payloads of one sender differ from it
 * in few of them.
 *
 * Shippers write the same keys in the same order, and most values are those of the host.
 */
package gateway.spark;

import java.util.Arrays;

/** Where the values of a payload are, and those that were asked for. */
public final class Known {

    public final byte[] bytes;
    /** Values that are read as one, in their order: where each begins and ends. */
    public int[] from = new int[64];
    public int[] to = new int[64];
    /** What is asked for of each; null: nothing. */
    public Keys[] asked = new Keys[64];
    public int count;
    /** By slot: what was found there, and how it begins. */
    public Object[] found;
    public byte[] kinds;
    /** By slot: whether a value of this key was read. */
    private final boolean[] named;
    /** Of two values one decides what a slot has: others can not be told by this payload. */
    private boolean unusable;

    public Known(byte[] bytes, int slots) {
        this.bytes = bytes;
        this.named = new boolean[slots];
    }

    /** Adds a value that was read as one. */
    public void addValue(int begin, int end, Keys keys) {
        if (count == from.length) {
            from = Arrays.copyOf(from, 2 * count);
            to = Arrays.copyOf(to, 2 * count);
            asked = (Keys[]) Arrays.copyOf(asked, 2 * count);
        }
        from[count] = begin;
        to[count] = end;
        asked[count++] = keys;
        if (keys != null) {
            addObject(keys);
            for (int n = 0; n < keys.slots.length; n++) {
                named[keys.slots[n]] = true;
            }
        }
    }

    /** Adds an object that is about to be read key by key: its key may have come before. */
    public void addObject(Keys keys) {
        for (int n = 0; n < keys.slots.length; n++) {
            unusable |= named[keys.slots[n]];
        }
    }

    /** Adds that an object which was read key by key is a value as well. */
    public void addWholeObject() {
        unusable = true;
    }

    /** Ends with what was found in all slots; whether others can be told by this payload. */
    public boolean end(Object[] values, byte[] begins) {
        found = values;
        kinds = begins;
        return !unusable;
    }
}
