/*
 * Instants as RFC 3339 and ISO 8601 write them, read without a cast.
 *
 * Spark's own cast reads other texts, looks at each zone with two regular expressions, and
 * knows neither basic, ordinal and week dates nor 24:00 and leap seconds.  What both read
 * they read as the same; for anything else there is null here, and Spark is asked.
 */
package gateway.spark;

import java.time.LocalDate;
import java.time.Year;
import java.time.YearMonth;
import org.apache.spark.unsafe.types.UTF8String;

/** Texts to microseconds since 1970. */
public final class Instants {

    private Instants() {
    }

    /** Null for all that Spark must read. */
    public static Long micros(UTF8String text) {
        Long usual = usual(text);
        return usual != null ? usual : new Reading(text).micros();
    }

    /** Of `2026-03-01T12:00:00.25Z` and its like, as nearly all senders write it. */
    private static Long usual(UTF8String text) {
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

    /**
     * One text, read from the left: a date, and where it is basic a time as well; a
     * fraction of the last of hour, minute and second; `Z`, an offset, or nothing for UTC.
     */
    private static final class Reading {

        private static final long SECOND = 1000000;
        /** No zone. */
        private static final int NONE = Integer.MIN_VALUE;

        private final UTF8String text;
        private final int length;
        private int at = 0;

        Reading(UTF8String text) {
            this.text = text;
            this.length = text.numBytes();
        }

        Long micros() {
            int digits = digits();
            boolean basic = digits > 4;
            LocalDate date = digits < 4 || length > 64 ? null : date(digits);
            if (date == null) {
                return null;
            }
            long day = 86400 * SECOND * date.toEpochDay();
            if (at == length) {
                return basic ? null : Long.valueOf(day); // eight digits may be any number
            }
            byte mark = text.getByte(at++);
            if (mark != 'T' && mark != 't' && mark != ' ') {
                return null;
            }
            long time = time();
            int east = zone();
            if (time < 0 || east == NONE) {
                return null;
            }
            return Long.valueOf(day + time - SECOND * east);
        }

        /** With so many digits at its beginning; null if it is none. */
        private LocalDate date(int digits) {
            int year = take(4);
            if (digits == 7) {
                return ordinal(year, take(3));
            }
            if (digits == 8) {
                int month = take(2);
                return calendar(year, month, take(2));
            }
            if (digits != 4) {
                return null;
            }
            boolean apart = skip('-');
            if (skip('W')) {
                int week = take(2);
                return apart == skip('-') ? weekday(year, week, take(1)) : null;
            }
            if (!apart) {
                return null;
            }
            if (digits() == 3) {
                return ordinal(year, take(3));
            }
            int month = take(2);
            return skip('-') ? calendar(year, month, take(2)) : null;
        }

        private static LocalDate calendar(int year, int month, int day) {
            boolean none = month < 1 || month > 12 || day < 1
                || day > YearMonth.of(year, month).lengthOfMonth();
            return none ? null : LocalDate.of(year, month, day);
        }

        private static LocalDate ordinal(int year, int day) {
            boolean none = day < 1 || day > Year.of(year).length();
            return none ? null : LocalDate.ofYearDay(year, day);
        }

        /** The first week of a year is that with its 4 January; days count from Monday. */
        private static LocalDate weekday(int year, int week, int day) {
            if (week < 1 || week > 53 || day < 1 || day > 7) {
                return null;
            }
            LocalDate fourth = LocalDate.of(year, 1, 4);
            LocalDate monday = fourth.minusDays(fourth.getDayOfWeek().getValue() - 1);
            LocalDate found = monday.plusDays(7 * (week - 1) + day - 1);
            boolean next = week == 53 && found.minusDays(day - 4).getYear() != year;
            return next ? null : found;
        }

        /** Microseconds since midnight, 24:00 among them; negative if it is no time. */
        private long time() {
            int hour = take(2);
            int minute = 0;
            int second = 0;
            long unit = 3600 * SECOND;
            boolean apart = skip(':');
            if (apart || digits() > 0) {
                minute = take(2);
                unit = 60 * SECOND;
                if (apart ? skip(':') : digits() > 0) {
                    second = take(2);
                    unit = SECOND;
                }
            }
            if (hour < 0 || hour > 24 || minute < 0 || minute > 59 || second < 0
                    || second > 60) { // a leap second is taken for the one behind it
                return -1;
            }
            long found = SECOND * (3600 * hour + 60 * minute + second);
            if (skip('.') || skip(',')) {
                int digits = digits();
                if (digits == 0) {
                    return -1;
                }
                int counted = Math.min(digits, 9);
                long fraction = take(counted);
                at += digits - counted;
                long whole = 1;
                for (int n = 0; n < counted; n++) {
                    whole *= 10;
                }
                found += fraction * unit / whole;
            }
            return hour == 24 && found != 86400 * SECOND ? -1 : found;
        }

        /** Seconds east of UTC of what is left of the text; NONE if it is no zone. */
        private int zone() {
            if (at == length) {
                return 0;
            }
            byte sign = text.getByte(at++);
            if (sign == 'Z' || sign == 'z') {
                return at == length ? 0 : NONE;
            }
            int hours = take(2);
            int minutes = 0;
            if (at < length) {
                skip(':');
                minutes = take(2);
            }
            if (sign != '+' && sign != '-' || at != length || hours < 0 || hours > 23
                    || minutes < 0 || minutes > 59) {
                return NONE;
            }
            return (sign == '-' ? -60 : 60) * (60 * hours + minutes);
        }

        /** How many digits come next. */
        private int digits() {
            int n = at;
            while (n < length && isDigit(text.getByte(n))) {
                n++;
            }
            return n - at;
        }

        /** The number of so many digits; negative where there are fewer. */
        private int take(int count) {
            if (at + count > length) {
                return -1;
            }
            at += count;
            return number(text, at - count, at);
        }

        private boolean skip(char wanted) {
            if (at < length && text.getByte(at) == wanted) {
                at++;
                return true;
            }
            return false;
        }
    }
}
