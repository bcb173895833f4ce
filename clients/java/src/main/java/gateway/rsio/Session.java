package gateway.rsio;

import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.Set;
import java.util.function.LongSupplier;
import java.util.stream.Collectors;
import java.util.zip.DataFormatException;
import java.util.zip.Deflater;
import java.util.zip.Inflater;

/**
 * One end of a conversation: hello, token, goodbye, blocks, and what may come when.
 *
 * <p>It knows no socket, no thread and no lock: octets that arrived are put into {@link #room} and
 * taken by {@link #received}; {@link #fill} gives what is to be written.
 */
final class Session {
    static final long NO_OFFSET = -1;
    private static final int FULL_BYTES = 1 << 17;
    private static final int PLAIN_BYTES = 1 << 16;
    private static final byte[] SYNC_FLUSH = {0, 0, -1, -1};
    private static final long SECOND_NANOS = 1_000_000_000L;

    enum State {
        /** The peer's hello has not come. */
        GREETING,
        /** A server waits for the token. */
        UNIDENTIFIED,
        OPEN,
        /** Goodbye is sent. */
        LEAVING,
        CLOSED
    }

    /** Whose end it is. */
    interface Side {
        /** Those that its hello lists. */
        long[] extensions();

        /** The peer subscribes; behind `offset` elements if that is not {@link #NO_OFFSET}. */
        Source publish(String publisher, long offset) throws Source.Refused;

        /** A client: both hellos were exchanged. A server: it knows who the client is. */
        void opened();

        /** A server: the client says which life of a publisher it is. */
        default void announced(Message announce) throws Violation {
            throw new Violation("announce to a client");
        }
    }

    final Side side;
    final Limits limits;
    final Consuming consuming = new Consuming(this);
    final Serving serving = new Serving(this);
    private final boolean server;
    private final LongSupplier nanos;
    private final long began;
    private final Decoder decoder = new Decoder(consuming::sizeOf);
    private final ArrayDeque<Message> control = new ArrayDeque<>();
    private final Output plain = new Output();
    private Set<Long> used = Set.of();
    private State state = State.GREETING;
    private String why = "";
    private String identity;
    private boolean bearer;
    private long controlled;
    private long elements;
    private Inflater inflater;
    private Deflater deflater;

    Session(Side side, boolean server, Limits limits, LongSupplier nanos) {
        this.side = side;
        this.server = server;
        this.limits = limits;
        this.nanos = nanos;
        this.began = nanos.getAsLong();
        if (!server) {
            hello(Type.CLIENT_HELLO);
        }
    }

    /** Demand adds up, and at 2^63-1 it is unbounded (3.17). */
    static long sum(long one, long other) {
        long sum = one + other;
        return sum < 0 ? Long.MAX_VALUE : sum;
    }

    State state() {
        return state;
    }

    /** Why it is closed. */
    String why() {
        return why;
    }

    boolean uses(int extension) {
        return used.contains((long) extension);
    }

    /** A server: the token's octets; null if there is none. */
    String identity() {
        return identity;
    }

    // What is to be sent

    private void hello(Type type) {
        Message hello = new Message(type);
        hello.extensions = side.extensions();
        control.add(hello);
    }

    /** Nothing follows goodbye. */
    void say(Message message) {
        if (state != State.LEAVING && state != State.CLOSED) {
            control.add(message);
        }
    }

    /** Asks to send blocks, which begin when the peer allows it. */
    void compress() {
        say(Message.number(Type.COMPRESS, 0, 1));
    }

    void goodbye(String reason) {
        if (state == State.LEAVING || state == State.CLOSED) {
            return;
        }
        say(Message.text(Type.GOODBYE, 0, reason));
        state = State.LEAVING;
        serving.end();
        consuming.end("we have said goodbye");
    }

    /** Ends the conversation, without waiting for an answer. */
    void violated(String reason) {
        String coded = uses(5) && !reason.matches("E\\d+ (?s:.*)") ? "E400 " + reason : reason;
        say(Message.text(Type.GOODBYE, 0, coded));
        end(coded);
    }

    /** The transport has ended. */
    void lost(String reason) {
        end(reason);
    }

    private void end(String reason) {
        if (state == State.CLOSED) {
            return;
        }
        state = State.CLOSED;
        why = reason;
        serving.end();
        consuming.end(reason);
        if (inflater != null) {
            inflater.end();
        }
        if (deflater != null) {
            deflater.end();
        }
    }

    /** Puts into `output`, which is empty, what is to be written now. */
    void fill(Output output) {
        consuming.ask();
        for (Message each; (each = control.poll()) != null;) {
            output.message(each);
        }
        if (state != State.OPEN && state != State.UNIDENTIFIED) {
            return;
        }
        if (deflater == null) {
            serving.fill(output, FULL_BYTES);
            return;
        }
        plain.clear();
        serving.fill(plain, PLAIN_BYTES);
        if (plain.size() > 0) {
            block(output);
        }
    }

    private void block(Output output) {
        ByteBuffer data = plain.written();
        deflater.setInput(data);
        ByteArrayOutputStream packed = new ByteArrayOutputStream();
        byte[] piece = new byte[1 << 13];
        int count;
        do {
            count = deflater.deflate(piece, 0, piece.length, Deflater.SYNC_FLUSH);
            packed.write(piece, 0, count);
        } while (count == piece.length);
        Message block = new Message(Type.BLOCK);
        block.data = ByteBuffer.wrap(packed.toByteArray());
        output.message(block);
    }

    // What arrives

    ByteBuffer room() {
        return decoder.room();
    }

    /** So many octets were put into {@link #room}. */
    void received(int count) {
        decoder.arrived(count);
        try {
            for (Message each; state != State.CLOSED && (each = decoder.next()) != null;) {
                if (each.type == Type.BLOCK) {
                    mayCome(each.type);
                    blockReceived(each.data);
                } else {
                    take(each);
                }
            }
        } catch (Violation reason) {
            violated(reason.getMessage());
        }
    }

    /** An element went either way: it is followed by stored and request. */
    void moved() {
        elements++;
    }

    /** Counts a message that moves no element. */
    void control() throws Violation {
        controlled++;
        long allowed = Limits.CONTROL_MESSAGES + 2 * elements;
        if (controlled > allowed) {
            long seconds = (nanos.getAsLong() - began) / SECOND_NANOS;
            if (controlled > allowed + seconds * Limits.CONTROL_MESSAGES_PER_SECOND) {
                throw new Violation("too many messages that move no element");
            }
        }
    }

    private void mayCome(Type type) throws Violation {
        boolean hello = type == (server ? Type.CLIENT_HELLO : Type.SERVER_HELLO);
        boolean greeting = state == State.GREETING;
        if (greeting && !hello && type != Type.GOODBYE) {
            throw new Violation("hello comes first");
        }
        if (!greeting && (type == Type.CLIENT_HELLO || type == Type.SERVER_HELLO)) {
            throw new Violation("a second hello");
        }
        if (type.extension != 0 && !uses(type.extension)) {
            throw new Violation(type + " without extension " + type.extension);
        }
        if (state == State.UNIDENTIFIED && (type == Type.SUBSCRIBE
                || type == Type.SUBSCRIBE_FROM || type == Type.ANNOUNCE)) {
            throw new Violation("E401 the token comes first");
        }
    }

    private void take(Message message) throws Violation {
        mayCome(message.type);
        switch (message.type) {
            case ON_NEXT, ON_NEXT_PACKED, ON_NEXT_PART, ON_NEXT_LAST_PART ->
                consuming.take(message);
            default -> {
                control();
                other(message);
            }
        }
    }

    private void other(Message message) throws Violation {
        switch (message.type) {
            case CLIENT_HELLO, SERVER_HELLO -> greeted(message);
            case GOODBYE -> {
                if (state != State.LEAVING) {
                    say(Message.text(uses(3) ? Type.GOODBYE_ACK : Type.GOODBYE, 0, ""));
                }
                end(message.text);
            }
            case GOODBYE_ACK -> {
                if (state != State.LEAVING) {
                    throw new Violation("goodbyeAck without a goodbye");
                }
                end(message.text);
            }
            case ON_SUBSCRIBE, ON_COMPLETE, ON_ERROR -> consuming.take(message);
            case PING -> {
                Message pong = new Message(Type.PONG);
                pong.data = message.data;
                say(pong);
            }
            case PONG -> { }
            case TOKEN -> token(message);
            case COMPRESS -> {
                if (message.number == 1) {
                    inflater = new Inflater();
                }
                say(Message.number(Type.COMPRESS_ACK, 0, message.number == 1 ? 1 : 0));
            }
            case COMPRESS_ACK -> {
                if (message.number == 1) {
                    deflater = new Deflater(Deflater.BEST_SPEED);
                }
            }
            case ANNOUNCE -> {
                if (message.number < 0 || message.number > 1
                        || message.number == 1 && !message.data.hasRemaining()) {
                    throw new Violation("an announce that is none");
                }
                side.announced(message);
            }
            case LIMITS -> serving.told(message.number);
            default -> {
                if (state != State.LEAVING) {
                    serving.take(message);
                }
            }
        }
    }

    private void greeted(Message hello) throws Violation {
        if (hello.number != 0) {
            throw new Violation("unsupported version " + hello.number + "; 0 only");
        }
        if (server) {
            hello(Type.SERVER_HELLO);
        }
        Set<Long> ours = Arrays.stream(side.extensions()).boxed().collect(Collectors.toSet());
        ours.retainAll(Arrays.stream(hello.extensions).boxed().collect(Collectors.toSet()));
        if (!ours.contains(2L)) {
            ours.remove(7L);
        }
        used = ours;
        state = server && uses(4) ? State.UNIDENTIFIED : State.OPEN;
        if (state == State.OPEN) {
            side.opened();
        }
    }

    private void token(Message message) throws Violation {
        boolean second = bearer && uses(7) && message.text.equals("name");
        if (state != State.UNIDENTIFIED && !second) {
            throw new Violation("a token at a time that is not for tokens");
        }
        if (!message.text.equals("name") && !message.text.equals("bearer")) {
            throw new Violation("E401 a token of scheme " + message.text);
        }
        bearer = message.text.equals("bearer");
        String said = new String(message.data.array(), java.nio.charset.StandardCharsets.UTF_8);
        identity = second ? identity + " " + said : said;
        state = State.OPEN;
        if (!second) {
            side.opened();
        }
    }

    private void blockReceived(ByteBuffer data) throws Violation {
        if (inflater == null) {
            throw new Violation("a block that nobody asked for");
        }
        control();
        byte[] octets = data.array();
        if (octets.length == 0) {
            return;
        }
        int from = Math.max(0, octets.length - SYNC_FLUSH.length);
        if (!Arrays.equals(Arrays.copyOfRange(octets, from, octets.length), SYNC_FLUSH)) {
            throw new Violation("no flush behind a block");
        }
        Decoder inner = new Decoder(consuming::sizeOf);
        inflater.setInput(octets);
        byte[] piece = new byte[1 << 14];
        long inflated = 0;
        try {
            for (int count; (count = inflater.inflate(piece)) > 0;) {
                inflated += count;
                if (inflated > Limits.INFLATED_BYTES) {
                    throw new Violation("a block that inflates to too much");
                }
                inner.feed(piece, 0, count);
                takeInner(inner);
                if (state == State.CLOSED) {
                    return;
                }
            }
        } catch (DataFormatException reason) {
            throw new Violation("a block that can not be inflated");
        }
        if (inflater.finished() || inflater.needsDictionary()) {
            throw new Violation("the end of the zlib stream");
        }
        if (inner.unread() > 0) {
            throw new Violation("a message that is cut by the end of a block");
        }
    }

    private void takeInner(Decoder inner) throws Violation {
        for (Message each; state != State.CLOSED && (each = inner.next()) != null;) {
            if (each.type == Type.BLOCK) {
                throw new Violation("a block in a block");
            }
            take(each);
        }
    }
}
