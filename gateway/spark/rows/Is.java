/*
 * What a value is to be: a text, or one in which an expression of RE2 is found.
 *
 * RE2 needs time that grows with the text, whatever the expression is, which Java's own does
 * not promise; so texts have a bound (`MOST_SEARCHED` in `gateway/config/tables.py`, too).
 * Spark's jars have it, in Java (RE2/J), where Hadoop puts it.
 */
package gateway.spark;

import java.io.Serializable;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import org.apache.spark.sql.api.java.UDF1;
import org.apache.spark.unsafe.types.UTF8String;

/** Text to whether it is wanted; as a function of a row null is not. */
public final class Is implements UDF1, Serializable {

    private static final String[] NAMES = {
        "org.apache.hadoop.shaded.com.google.re2j.Pattern", "com.google.re2j.Pattern"
    };

    /** Bytes of the texts that an expression is looked for in, of a list all together. */
    private static final int MOST = 16 << 10;

    private final String text;
    private final boolean expression;
    private transient UTF8String equal;
    private transient Object pattern;
    private transient Method matcher;
    private transient Method find;

    /** Asks for just this *text*, or for one in which that is found as an *expression*. */
    public Is(String text, Boolean expression) throws Exception {
        this.text = text;
        this.expression = expression.booleanValue();
        prepare();
    }

    public Object call(Object value) throws Exception {
        return Boolean.valueOf(value != null && of(UTF8String.fromString((String) value)));
    }

    /** The most bytes that are looked at. */
    public int most() {
        return expression ? MOST : Integer.MAX_VALUE;
    }

    /** Whether *value* is it. */
    public boolean of(UTF8String value) {
        try {
            if (equal == null && pattern == null) {
                prepare();
            }
            if (equal != null) {
                return equal.equals(value);
            }
            if (value.numBytes() > most()) {
                return false;
            }
            Object one = matcher.invoke(pattern, new Object[] {value.toString()});
            return ((Boolean) find.invoke(one, new Object[0])).booleanValue();
        } catch (Exception why) {
            throw new IllegalStateException(why);
        }
    }

    private void prepare() throws Exception {
        if (!expression) {
            equal = UTF8String.fromString(text);
            return;
        }
        Class kind = kind();
        matcher = kind.getMethod("matcher", new Class[] {CharSequence.class});
        find = matcher.getReturnType().getMethod("find", new Class[0]);
        Method compile = kind.getMethod("compile", new Class[] {String.class});
        try {
            pattern = compile.invoke(null, new Object[] {text});
        } catch (InvocationTargetException why) { // it lacks newer scripts, for one
            throw new IllegalArgumentException("spark.tables: " + why.getCause().getMessage());
        }
    }

    private static Class kind() throws ClassNotFoundException {
        ClassLoader loader = Thread.currentThread().getContextClassLoader();
        try {
            return Class.forName(NAMES[0], true, loader);
        } catch (ClassNotFoundException why) {
            return Class.forName(NAMES[1], true, loader);
        }
    }
}
