package gateway.rsio;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.net.URI;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import net.jqwik.api.ForAll;
import net.jqwik.api.Property;
import net.jqwik.api.constraints.IntRange;
import net.jqwik.api.constraints.Size;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** HTTP/2, octet by octet, at a peer that says what it is told to. */
@Timeout(60)
class Http2Test {
    private static final String SETTINGS = "000000040000000000";
    private static final String GRANTED = "00000101040000000188";
    private static final String GOES_ON = "000001000000000001" + "2a";
    private static final String PREFACE = "505249202a20485454502f322e300d0a0d0a534d0d0a0d0a"
            + "000012040000000000" + "000100000000" + "000200000000" + "000400100000"
            + "000004080000000000" + "000f0001";
    private static final int WINDOW_BYTES = 1 << 20;
    private static final int USUAL_WINDOW_BYTES = 65_535;
    private static final long SECONDS = 30;

    /** The connection below: the peer's octets, and ours. */
    private static final class Wire implements Transport {
        private final BlockingQueue<ByteBuffer> arriving = new LinkedBlockingQueue<>();
        private final ByteArrayOutputStream written = new ByteArrayOutputStream();
        private ByteBuffer current = ByteBuffer.allocate(0);
        private boolean takes = true;
        private boolean closed;

        Wire says(String hex) {
            return says(HexFormat.of().parseHex(hex));
        }

        Wire says(byte[] octets) {
            arriving.add(ByteBuffer.wrap(octets));
            return this;
        }

        /** As a socket has it that was set to wait, and whose peer says nothing more. */
        Wire falls(boolean silent) {
            arriving.add(ByteBuffer.allocate(silent ? 1 : 0).limit(0));
            return this;
        }

        synchronized void takes(boolean more) {
            takes = more;
            notifyAll();
        }

        /** What was written, once it is so much; from then on it counts anew. */
        synchronized byte[] written(int octets) throws Exception {
            long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(SECONDS);
            while (written.size() < octets) {
                long left = TimeUnit.NANOSECONDS.toMillis(end - System.nanoTime());
                assertTrue(left > 0, "only " + written.size() + " of " + octets + " octets");
                wait(left);
            }
            byte[] found = written.toByteArray();
            written.reset();
            return found;
        }

        String writtenHex(int octets) throws Exception {
            return HexFormat.of().formatHex(written(octets));
        }

        @Override
        public int read(ByteBuffer room) throws IOException {
            try {
                while (!current.hasRemaining()) {
                    current = arriving.take();
                    if (!current.hasRemaining()) {
                        return current.capacity() == 0 ? -1 : 0;
                    }
                }
            } catch (InterruptedException why) {
                throw new IOException(why);
            }
            int count = Math.min(room.remaining(), current.remaining());
            room.put(current.slice(current.position(), count));
            current.position(current.position() + count);
            return count;
        }

        @Override
        public void patience(int milliseconds) {}

        @Override
        public synchronized void write(ByteBuffer data) throws IOException {
            try {
                while (!takes && !closed) {
                    wait();
                }
            } catch (InterruptedException why) {
                throw new IOException(why);
            }
            if (closed) {
                throw new IOException("closed below");
            }
            written.write(data.array(), data.arrayOffset() + data.position(), data.remaining());
            notifyAll();
        }

        @Override
        public void end() {
            throw new AssertionError("the connection outlives our end of the stream");
        }

        @Override
        public synchronized void close() {
            closed = true;
            arriving.add(ByteBuffer.allocate(0));
            notifyAll();
        }
    }

    private final Wire wire = new Wire();

    private Transport asked() throws Exception {
        return asked("http://gw");
    }

    private Transport asked(String where) throws Exception {
        return new Http2Transport(wire, URI.create(where));
    }

    /** A stream that is granted; what we said so far is not counted. */
    private Transport granted() throws Exception {
        Transport made = asked();
        wire.says(SETTINGS + GRANTED + GOES_ON);
        assertEquals("2a", read(made, 1));
        wire.written(PREFACE.length() / 2 + 36 + 9);
        return made;
    }

    private static String frame(int type, int flags, int stream, String payload) {
        return String.format("%06x%02x%02x%08x", payload.length() / 2, type, flags, stream)
                + payload;
    }

    private static String read(Transport from, int octets) throws IOException {
        ByteBuffer room = ByteBuffer.allocate(octets);
        while (room.hasRemaining()) {
            assertTrue(from.read(room) > 0);
        }
        return HexFormat.of().formatHex(room.array());
    }

    private static int readOn(Transport from) throws IOException {
        return from.read(ByteBuffer.allocate(100));
    }

    private static String whyLost(Transport from) {
        return assertThrows(IOException.class, () -> readOn(from)).getMessage();
    }

    private static CompletableFuture<Void> writing(Transport to, byte[] octets) {
        return CompletableFuture.runAsync(() -> {
            try {
                to.write(ByteBuffer.wrap(octets));
            } catch (IOException why) {
                throw new CompletionException(why);
            }
        });
    }

    private static byte[] octets(int count) {
        byte[] made = new byte[count];
        for (int n = 0; n < count; n++) {
            made[n] = (byte) (n * 31 + n / 251);
        }
        return made;
    }

    /** The payload of DATA frames, and nothing else. */
    private static byte[] payload(byte[] frames) {
        ByteBuffer rest = ByteBuffer.wrap(frames);
        ByteArrayOutputStream found = new ByteArrayOutputStream();
        while (rest.hasRemaining()) {
            int head = rest.getInt();
            assertEquals(0, head & 0xff, "the type");
            assertEquals(0, rest.get(), "the flags");
            assertEquals(1, rest.getInt(), "the stream");
            assertTrue(head >>> 8 <= 1 << 14, "the length");
            byte[] payload = new byte[head >>> 8];
            rest.get(payload);
            found.writeBytes(payload);
        }
        return found.toByteArray();
    }

    /** The request is that of the definition; the first message goes out before an answer. */
    @Test
    void itAsksAsDefined() throws Exception {
        Transport made = asked();
        made.write(ByteBuffer.wrap(new byte[] {1, 0, 0}));
        made.end();
        String head = "00001d010400000001" + "838604012f010267770f1011"
                + HexFormat.of().formatHex("application/rs-io".getBytes());
        String data = frame(0, 0, 1, "010000") + frame(0, 1, 1, "");
        String all = PREFACE + head + data;
        assertEquals(all, wire.writtenHex(all.length() / 2));
    }

    /** Path, query, port and scheme of an address are the request's. */
    @Test
    void itAsksForItsAddress() throws Exception {
        String path = "/" + "x".repeat(300) + "?a=b%20c";
        asked("https://gw.example:7443" + path);
        String text = new String(
                wire.written(PREFACE.length() / 2 + 360), StandardCharsets.ISO_8859_1);
        String head = text.substring(PREFACE.length() / 2 + 9);
        int rest = path.length() - 0x7f;
        assertTrue(head.startsWith("\u0083\u0087\u0004\u007f" + (char) (rest & 0x7f | 0x80)
                + (char) (rest >> 7) + path + "\u0001\u000fgw.example:7443\u000f\u0010\u0011"));
        IOException why = assertThrows(
                IOException.class, () -> asked("http://gw/" + "x".repeat(17_000)));
        assertTrue(why.getMessage().contains("path"));
    }

    /** Cut anywhere, padded or not, with frames between that mean nothing: the octets arrive. */
    @Property(tries = 200)
    void octetsArriveInAnyFrames(
            @ForAll @Size(max = 30) List<@IntRange(max = 16_000) Integer> sizes,
            @ForAll @Size(min = 1, max = 20) List<@IntRange(min = 1, max = 20_000) Integer> cuts,
            @ForAll @IntRange(min = -1, max = 255) int padding) throws Exception {
        Wire made = new Wire();
        ByteArrayOutputStream expected = new ByteArrayOutputStream();
        StringBuilder said = new StringBuilder(SETTINGS + GRANTED);
        for (int size : sizes) {
            byte[] octets = octets(size);
            expected.writeBytes(octets);
            String hex = HexFormat.of().formatHex(octets);
            said.append(padding < 0 ? frame(0, 0, 1, hex)
                    : frame(0, 8, 1, String.format("%02x", padding) + hex + "00".repeat(padding)));
            said.append(frame(6, 0, 0, "0123456789abcdef")).append(frame(0xfa, 0xff, 77, "01"));
            said.append(frame(2, 0, 1, "0000000310"));
        }
        byte[] all = HexFormat.of().parseHex(said + frame(1, 5, 1, "00016101" + "62"));
        for (int at = 0, n = 0; at < all.length; n++) {
            int end = Math.min(all.length, at + cuts.get(n % cuts.size()));
            made.says(Arrays.copyOfRange(all, at, end));
            at = end;
        }
        Transport reading = new Http2Transport(made, URI.create("http://gw/"));
        ByteArrayOutputStream found = new ByteArrayOutputStream();
        ByteBuffer room = ByteBuffer.allocate(5_000);
        for (int count; (count = reading.read(room.clear())) >= 0;) {
            found.write(room.array(), 0, count);
        }
        reading.close();
        assertArrayEquals(expected.toByteArray(), found.toByteArray());
    }

    /** Any octets of a peer are taken, or end the stream with a reason; nothing else. */
    @Property(tries = 500)
    void anyOctetsAreTakenOrRefused(
            @ForAll @Size(max = 12) List<@IntRange(max = 10) Integer> types,
            @ForAll @Size(max = 300) byte[] octets,
            @ForAll @Size(min = 1, max = 5) List<@IntRange(max = 40) Integer> lengths)
            throws Exception {
        Wire made = new Wire();
        made.says(SETTINGS + GRANTED);
        int at = 0;
        for (int n = 0; n < types.size() && at + 2 < octets.length; n++) {
            int end = Math.min(octets.length, at + 2 + lengths.get(n % lengths.size()));
            made.says(frame(types.get(n), octets[at] & 0xff, octets[at + 1] & 1,
                    HexFormat.of().formatHex(octets, at + 2, end)));
            at = end;
        }
        made.says(octets).falls(false);
        Transport reading = new Http2Transport(made, URI.create("http://gw"));
        try {
            while (readOn(reading) >= 0) { }
        } catch (IOException why) {
            assertTrue(!why.getMessage().isEmpty());
        }
        reading.close();
    }

    /** What both windows have room for is written; for more it waits until both have it. */
    @Test
    void itWaitsForBothWindows() throws Exception {
        Transport made = granted();
        byte[] octets = octets(100_000);
        CompletableFuture<Void> write = writing(made, octets);
        byte[] first = payload(wire.written(USUAL_WINDOW_BYTES + 4 * 9));
        assertArrayEquals(Arrays.copyOf(octets, USUAL_WINDOW_BYTES), first);
        // An answer on the wire shows that the stream's window alone was not enough.
        String ping = "0011223344556677";
        wire.says(frame(8, 0, 1, "00100000") + frame(6, 0, 0, ping) + GOES_ON);
        assertEquals("2a", read(made, 1));
        assertEquals(frame(6, 1, 0, ping), wire.writtenHex(17));
        wire.says(frame(8, 0, 0, "00000001") + GOES_ON);
        assertEquals("2a", read(made, 1));
        assertEquals(1, payload(wire.written(10)).length);
        wire.says(frame(8, 0, 0, "7fff0000") + GOES_ON);
        assertEquals("2a", read(made, 1));
        int left = octets.length - USUAL_WINDOW_BYTES - 1;
        assertArrayEquals(Arrays.copyOfRange(octets, octets.length - left, octets.length),
                payload(wire.written(left + 3 * 9)));
        write.get(SECONDS, TimeUnit.SECONDS);
    }

    /** The peer's settings change a window that is in use, to less than nothing too. */
    @Test
    void settingsChangeTheWindow() throws Exception {
        Transport made = granted();
        writing(made, octets(1000)).get(SECONDS, TimeUnit.SECONDS);
        wire.written(1009);
        wire.says(frame(4, 0, 0, "000400000064" + "000500ffffff" + "fe0900000001") + GOES_ON);
        assertEquals("2a", read(made, 1));
        assertEquals("000000040100000000", wire.writtenHex(9));
        CompletableFuture<Void> write = writing(made, octets(50));
        wire.says(frame(8, 0, 1, "00000384") + GOES_ON); // 100 - 1000 + 900
        assertEquals("2a", read(made, 1));
        wire.says(frame(4, 0, 0, "000400000096") + GOES_ON);
        assertEquals("2a", read(made, 1));
        byte[] found = wire.written(9 + 59);
        String hex = HexFormat.of().formatHex(found).replace("000000040100000000", "");
        assertArrayEquals(octets(50), payload(HexFormat.of().parseHex(hex)));
        write.get(SECONDS, TimeUnit.SECONDS);
    }

    /** All that is read is credited on both levels, padding too, though nobody asks for more. */
    @Test
    void whatIsReadIsCredited() throws Exception {
        Transport made = granted();
        String padded = "ff" + "11" + "00".repeat(255);
        int frames = 2 * WINDOW_BYTES / (padded.length() / 2);
        for (int n = 0; n < frames; n++) {
            wire.says(frame(0, 8, 1, padded));
            read(made, 1);
        }
        long connection = 0;
        long stream = 0;
        long most = 1 + (long) frames * padded.length() / 2;
        while (stream < most - WINDOW_BYTES / 4) {
            ByteBuffer credits = ByteBuffer.wrap(wire.written(26));
            while (credits.hasRemaining()) {
                assertEquals(4 << 8 | 8, credits.getInt());
                credits.get();
                if (credits.getInt() == 0) {
                    connection += credits.getInt();
                } else {
                    stream += credits.getInt();
                }
            }
        }
        assertEquals(connection, stream);
        assertTrue(stream <= most);
    }

    /** A peer that takes nothing is read all the same, until it is owed too many answers. */
    @Test
    void whatIsOwedHoldsNobodyBack() throws Exception {
        Transport made = granted();
        wire.takes(false);
        String ping = frame(6, 0, 0, "0123456789abcdef");
        wire.says(ping.repeat(3) + GOES_ON);
        assertEquals("2a", read(made, 1));
        wire.takes(true);
        wire.written(17 * 3);
        wire.takes(false);
        for (int n = 0; n < 100; n++) {
            wire.says(ping.repeat(100));
        }
        wire.falls(false);
        assertTrue(whyLost(made).contains("does not read"));
    }

    /** A refusal is told with its status, in any form of HPACK. */
    @ParameterizedTest
    @ValueSource(strings = {
        "404 8d", "404 208d", "404 3fe11f8d0f0d0130", "405 4803343035", "405 4883680dff",
        "415 1883682dff", "501 48826c01", "503 08836c0cff", "999 48837df7ff",
        "210 48821041", "503 00073a73746174757303353033", "500 4085b8848d36a3" + "03353030",
    })
    void refusals(String told) throws Exception {
        String[] parts = told.split(" ");
        wire.says(SETTINGS + frame(1, 5, 1, parts[1]));
        assertEquals("the request is answered with status " + parts[0], whyLost(asked()));
    }

    /** What is no answer's head ends the stream, and so does DATA without one. */
    @ParameterizedTest
    @ValueSource(strings = {
        "", "20", "82", "c8", "0003", "08", "088268", "0882", "0802323030", "080532303020",
        "0803323078", "0883343035", "0884680dffff", "0883ffffff", "08ffffffff7f", "3fffffff7f88",
    })
    void headsThatAreNone(String head) throws Exception {
        wire.says(SETTINGS + frame(1, 4, 1, head) + GOES_ON).falls(false);
        assertTrue(whyLost(asked()).startsWith("the peer breaks HTTP/2: "));
    }

    /** A head may come in parts, padded, with a priority, and behind others that say "wait". */
    @Test
    void headsInParts() throws Exception {
        Transport made = asked();
        wire.says(SETTINGS + frame(1, 4, 1, "007f8101" + "61".repeat(256) + "03313030"));
        wire.says(frame(1, 0x28, 1, "02" + "0000000010" + "0803" + "0000") + frame(9, 0, 1, ""));
        wire.says(frame(9, 0, 1, "3230") + frame(9, 4, 1, "30" + "0f1000") + GOES_ON);
        assertEquals("2a", read(made, 1));
    }

    /** END_STREAM is the end, of trailers too, and our octets go out behind it. */
    @ParameterizedTest
    @ValueSource(strings = {"000000000100000001", "00000101050000000188"})
    void theirEnd(String end) throws Exception {
        Transport made = granted();
        wire.says(GOES_ON + end);
        assertEquals("2a", read(made, 1));
        assertEquals(-1, readOn(made));
        assertEquals(-1, readOn(made));
        made.write(ByteBuffer.wrap(new byte[] {3, 0}));
        made.end();
        assertEquals(frame(0, 0, 1, "0300") + frame(0, 1, 1, ""), wire.writtenHex(20));
    }

    /** Whoever waits for a window hears of the peer's end, and of our own. */
    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void theEndOfWaiting(boolean ours) throws Exception {
        Transport made = granted();
        CompletableFuture<Void> write = writing(made, octets(USUAL_WINDOW_BYTES + 1));
        wire.written(USUAL_WINDOW_BYTES + 4 * 9);
        if (ours) {
            made.close();
        } else {
            wire.says(frame(0, 1, 1, ""));
            assertEquals(-1, readOn(made));
        }
        Throwable why = assertThrows(java.util.concurrent.ExecutionException.class,
                () -> write.get(SECONDS, TimeUnit.SECONDS));
        assertEquals(IOException.class, why.getCause().getClass());
    }

    /** RST_STREAM is a lost transport, and says why. */
    @Test
    void aReset() throws Exception {
        Transport made = granted();
        wire.says(frame(3, 0, 1, "00000007"));
        assertEquals("the peer has reset the stream: REFUSED_STREAM", whyLost(made));
    }

    /** A peer that is about to leave lets the stream go on; one that never had it does not. */
    @Test
    void aFarewell() throws Exception {
        Transport made = granted();
        String text = HexFormat.of().formatHex("tea time".getBytes());
        wire.says(frame(7, 0, 0, "00000001" + "0000000b" + text) + GOES_ON).falls(false);
        assertEquals("2a", read(made, 1));
        assertEquals("the connection ended before its stream;"
                + " the peer left: ENHANCE_YOUR_CALM tea time", whyLost(made));
        Wire other = new Wire().says(SETTINGS + frame(7, 0, 0, "00000000" + "000000ff"));
        String why = whyLost(new Http2Transport(other, URI.create("http://gw")));
        assertTrue(why.startsWith("the stream is not taken") && why.contains("code 255"));
    }

    /** A peer that breaks HTTP/2 is told apart from one that has left. */
    @ParameterizedTest
    @ValueSource(strings = {
        "004001000000000001", // DATA that is too large
        "000001000000000003" + "2a", // of another stream
        "000001000000000000" + "2a",
        "000000000800000001", // padding: none, and too much
        "000002000800000001" + "022a",
        "000004012000000001" + "00000000", // a priority that is cut
        "000001010400000001" + "88", // a second head, which is no end
        "000000090400000001", // CONTINUATION of nothing
        "000000010000000001" + "000000fa0000000000", // header fields that are not whole
        "000003030000000001" + "000000", // sizes
        "000005040000000000" + "0000000000",
        "000007060000000000" + "00000000000000",
        "000004070000000000" + "00000000",
        "000003080000000001" + "000001",
        "000000040000000001", // places
        "000008060000000001" + "0000000000000000",
        "000004030000000000" + "00000000",
        "000004080000000003" + "00000001",
        "000004080000000001" + "00000000", // windows
        "000004080000000000" + "7fffffff",
        "000006040000000000" + "000480000000",
        "000004050400000001" + "00000002", // a push
    })
    void whatBreaksIt(String frame) throws Exception {
        Transport made = granted();
        wire.says(frame).falls(false);
        String why = whyLost(made);
        assertTrue(why.startsWith("the peer breaks HTTP/2: "), why);
    }

    /** Header fields without an end are not kept for ever. */
    @Test
    void headsHaveAnEnd() throws Exception {
        Transport made = asked();
        wire.says(SETTINGS + frame(1, 0, 1, "88"));
        for (int n = 0; n < 5; n++) {
            wire.says(frame(9, 0, 1, "00".repeat(1 << 14)));
        }
        assertTrue(whyLost(made).contains("header fields of more than"));
    }

    /** What is no HTTP/2 is told so. */
    @ParameterizedTest
    @ValueSource(strings = {"HTTP/1.1 400 Bad Request\r\n\r\n", "\3\3bye", ""})
    void noHttp2(String said) throws Exception {
        if (!said.isEmpty()) {
            wire.says(said.getBytes(StandardCharsets.US_ASCII));
        }
        wire.falls(false);
        assertEquals("no HTTP/2 there", whyLost(asked()));
    }

    /** A silence is a silence, whatever a proxy says meanwhile that is no DATA. */
    @Test
    void silence() throws Exception {
        Transport made = granted();
        wire.falls(true);
        assertEquals(0, readOn(made));
        made.patience(1);
        CompletableFuture<Integer> quiet = CompletableFuture.supplyAsync(() -> {
            try {
                return readOn(made);
            } catch (IOException why) {
                throw new CompletionException(why);
            }
        });
        while (!quiet.isDone()) {
            wire.says(frame(6, 1, 0, "0123456789abcdef"));
            Thread.sleep(1);
        }
        assertEquals(0, quiet.get());
        wire.says(GOES_ON);
        assertEquals("2a", read(made, 1));
    }

    /** DATA that no head has announced is no stream of octets. */
    @Test
    void dataWithoutAnAnswer() throws Exception {
        wire.says(SETTINGS + GOES_ON);
        assertTrue(whyLost(asked()).contains("DATA before the head"));
    }

    /** A stream that is granted and over at once is told as such. */
    @Test
    void anAnswerAlone() throws Exception {
        wire.says(SETTINGS + frame(1, 5, 1, "88"));
        assertTrue(whyLost(asked()).contains("nothing else"));
    }
}
