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
    /** A key came twice: a value alone does not say what counts. */
    private boolean twice;

    public Known(byte[] bytes, int slots) {
        this.bytes = bytes;
        this.named = new boolean[slots];
    }

    /** A value was read as one. */
    public void value(int begin, int end, Keys keys) {
        if (count == from.length) {
            from = Arrays.copyOf(from, 2 * count);
            to = Arrays.copyOf(to, 2 * count);
            asked = (Keys[]) Arrays.copyOf(asked, 2 * count);
        }
        from[count] = begin;
        to[count] = end;
        asked[count++] = keys;
        if (keys != null) {
            object(keys);
            for (int n = 0; n < keys.slots.length; n++) {
                named[keys.slots[n]] = true;
            }
        }
    }

    /** An object is about to be read key by key. */
    public void object(Keys keys) {
        for (int n = 0; n < keys.slots.length; n++) {
            twice |= named[keys.slots[n]];
        }
    }

    /** An object was read key by key, and is a value as well. */
    public void both() {
        twice = true;
    }

    /** Whether other payloads can be told by this one, of which these were found. */
    public boolean close(Object[] values, byte[] begins) {
        found = values;
        kinds = begins;
        return !twice;
    }
}
