/*
 * Dates with a time of day as nearly all senders write them, read without a cast.
 *
 * Spark's own cast understands far more, and pays for it: it looks at each zone with two
 * regular expressions.  What is read here Spark reads as the same; for anything else there
 * is null, and Spark is asked.
 */
package gateway.spark;

import java.time.LocalDate;
import java.time.YearMonth;
import org.apache.spark.unsafe.types.UTF8String;

/** Texts to microseconds since 1970. */
public final class Instants {

    private Instants() {
    }

    /** Of `2026-03-01T12:00:00.25Z` and its like; null for all that Spark must read. */
    public static Long micros(UTF8String text) {
        int length = text.numBytes();
        if (length < 20 || text.getByte(4) != '-' || text.getByte(7) != '-'
                || text.getByte(13) != ':' || text.getByte(16) != ':'
                || text.getByte(10) != 'T' && text.getByte(10) != ' ') {
            return null;
        }
        int year = number(text, 0, 4);
        int month = number(text, 5, 7);
        int day = number(text, 8, 10);
        int hour = number(text, 11, 13);
        int minute = number(text, 14, 16);
        int second = number(text, 17, 19);
        if (year < 0 || month < 1 || month > 12 || day < 1 || hour < 0 || hour > 23
                || minute < 0 || minute > 59 || second < 0 || second > 59
                || day > 28 && day > YearMonth.of(year, month).lengthOfMonth()) {
            return null;
        }
        int at = 19;
        int fraction = 0;
        if (text.getByte(at) == '.' || text.getByte(at) == ',') {
            int digits = 0;
            at++;
            while (at < length && isDigit(text.getByte(at))) {
                if (digits < 6) {
                    fraction = 10 * fraction + text.getByte(at) - '0';
                }
                digits++;
                at++;
            }
            if (digits == 0) {
                return null;
            }
            while (digits < 6) {
                fraction *= 10;
                digits++;
            }
        }
        int east = 0;
        if (at + 6 == length && text.getByte(at + 3) == ':') {
            int hours = number(text, at + 1, at + 3);
            int minutes = number(text, at + 4, at + 6);
            byte sign = text.getByte(at);
            if (hours < 0 || hours > 17 || minutes < 0 || minutes > 59
                    || sign != '+' && sign != '-') {
                return null;
            }
            east = (sign == '-' ? -60 : 60) * (60 * hours + minutes);
        } else if (at + 1 != length || text.getByte(at) != 'Z') {
            return null;
        }
        long days = LocalDate.of(year, month, day).toEpochDay();
        long seconds = 86400 * days + 3600 * hour + 60 * minute + second - east;
        return Long.valueOf(1000000 * seconds + fraction);
    }

    /** What the digits there say; negative if one is none. */
    private static int number(UTF8String text, int from, int to) {
        int value = 0;
        for (int n = from; n < to; n++) {
            byte one = text.getByte(n);
            if (!isDigit(one)) {
                return -1;
            }
            value = 10 * value + one - '0';
        }
        return value;
    }

    private static boolean isDigit(byte one) {
        return one >= '0' && one <= '9';
    }
}
