package gateway.rsio;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** The vectors of the protocol's definition, as the repository has them for every language. */
class VectorsTest {
    private static final Path VECTORS = Path.of("src/test/resources/rsio.jsonl");
    private static final HexFormat HEX = HexFormat.of();
    private static final Pattern FIELD = Pattern.compile(
            "\"(\\w+)\": (\"(?:[^\"\\\\]|\\\\.)*\"|\\[[^\\]]*\\]|[0-9]+)");

    /** The text of a field anywhere in a line; the lines are flat enough for that. */
    private static String field(String line, String name) {
        Matcher found = FIELD.matcher(line);
        while (found.find()) {
            if (found.group(1).equals(name)) {
                return found.group(2).replace("\"", "");
            }
        }
        throw new AssertionError(name + " in " + line);
    }

    private static List<String> of(String kind) throws IOException {
        try (var lines = Files.lines(VECTORS)) {
            List<String> found =
                    lines.filter(each -> field(each, "kind").equals(kind)).toList();
            assertTrue(found.size() > 5, kind);
            return found;
        }
    }

    private static byte[] octets(String line) {
        return HEX.parseHex(field(line, "hex"));
    }

    private static String said(Message message, Type.Field field) {
        return switch (field) {
            case VERSION, NUMBER, SIZE -> Long.toUnsignedString(message.number);
            case EXTENSIONS -> Arrays.toString(message.extensions);
            case SUBSCRIBER -> Long.toUnsignedString(message.subscriber);
            case OFFSET -> Long.toUnsignedString(message.offset);
            case NAME, TEXT -> message.text;
            case DATA, INSTANCE, PART, ELEMENT, PACKED -> HEX.formatHex(message.data.array());
        };
    }

    /** Each message is read as it is meant, and written as it is read. */
    @Test
    void messages() throws Exception {
        for (String line : of("message")) {
            byte[] octets = octets(line);
            Decoder decoder = new Decoder(id -> Decoder.UNKNOWN);
            decoder.feed(octets, 0, octets.length);
            Message message = decoder.next();
            assertNotNull(message, line);
            assertEquals(0, decoder.unread(), line);
            String name = field(line, "message");
            assertEquals(name.toLowerCase(), message.type.name().replace("_", "").toLowerCase());
            String fields = line.substring(line.indexOf("\"fields\""));
            Matcher found = FIELD.matcher(
                    fields.substring("\"fields\": ".length(), fields.indexOf('}') + 1));
            for (Type.Field each : message.type.fields) {
                assertTrue(found.find(), line);
                assertEquals(found.group(2).replace("\"", ""), said(message, each), line);
            }
            Output output = new Output();
            output.message(message);
            assertEquals(field(line, "hex"), hex(output), line);
        }
    }

    private static String hex(Output output) {
        return HEX.formatHex(output.written().array(), 0, output.size());
    }

    /** Elements come out whole, in order, whatever they came in. */
    @Test
    void elements() throws Exception {
        for (String line : of("elements")) {
            Recorder recorder = new Recorder();
            Session session = recorder.client();
            Output output = new Output();
            output.message(new Message(Type.SERVER_HELLO));
            output.message(Message.number(
                    Type.ON_SUBSCRIBE, 1, Long.parseLong(field(line, "elementSize"))));
            output.raw(ByteBuffer.wrap(octets(line)));
            Recorder.deliver(session, output.written(), Integer.MAX_VALUE);
            assertEquals(Session.State.OPEN, session.state(), line);
            String all = recorder.elements.stream()
                    .map(each -> "\"" + Recorder.hex(each) + "\"").toList().toString();
            assertTrue(line.contains("\"elements\": " + all), line + all);
        }
    }

    /** Numbers are read in any length and written in the shortest. */
    @Test
    void varints() throws Exception {
        for (String line : of("varint")) {
            long value = Long.parseUnsignedLong(field(line, "value"));
            byte[] request = HEX.parseHex("1101" + field(line, "hex"));
            Decoder decoder = new Decoder(id -> Decoder.UNKNOWN);
            decoder.feed(request, 0, request.length);
            assertEquals(value, decoder.next().number, line);
            assertEquals(0, decoder.unread(), line);
            if (line.contains("shortest")) {
                Output output = new Output();
                output.varint(value);
                assertEquals(field(line, "hex"), hex(output), line);
            }
        }
    }

    /** What must not be said is answered with goodbye, however it is cut. */
    @ParameterizedTest
    @ValueSource(ints = {1, 2, 10_000})
    void refusals(int step) throws Exception {
        for (String line : of("refused")) {
            Session session = new Recorder().server();
            Recorder.deliver(session, ByteBuffer.wrap(octets(line)), step);
            assertEquals(Session.State.CLOSED, session.state(), line);
            Output output = new Output();
            session.fill(output);
            Decoder decoder = new Decoder(id -> Decoder.UNKNOWN);
            decoder.feed(output.written().array(), 0, output.size());
            Message last = null;
            for (Message each; (each = decoder.next()) != null;) {
                last = each;
            }
            assertNotNull(last, line);
            assertEquals(Type.GOODBYE, last.type, line);
            assertTrue(!last.text.isEmpty(), line);
            assertNull(decoder.next());
        }
    }
}
