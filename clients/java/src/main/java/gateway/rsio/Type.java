package gateway.rsio;

/** The messages of RS.io: the octet of each, the extension it belongs to, and its fields in order. */
enum Type {
    CLIENT_HELLO(0x01, 0, Field.VERSION, Field.EXTENSIONS),
    SERVER_HELLO(0x02, 0, Field.VERSION, Field.EXTENSIONS),
    GOODBYE(0x03, 0, Field.TEXT),
    GOODBYE_ACK(0x04, 3, Field.TEXT),
    SUBSCRIBE(0x10, 0, Field.NAME, Field.SUBSCRIBER, Field.NUMBER),
    REQUEST(0x11, 0, Field.SUBSCRIBER, Field.NUMBER),
    CANCEL(0x12, 0, Field.SUBSCRIBER),
    ON_SUBSCRIBE(0x20, 0, Field.SUBSCRIBER, Field.SIZE),
    ON_NEXT(0x21, 0, Field.SUBSCRIBER, Field.ELEMENT),
    ON_COMPLETE(0x22, 0, Field.SUBSCRIBER),
    ON_ERROR(0x23, 0, Field.SUBSCRIBER, Field.TEXT),
    ON_NEXT_PACKED(0x24, 0, Field.SUBSCRIBER, Field.PACKED),
    ON_NEXT_PART(0x25, 0, Field.SUBSCRIBER, Field.OFFSET, Field.PART),
    ON_NEXT_LAST_PART(0x26, 0, Field.SUBSCRIBER, Field.OFFSET, Field.PART),
    PING(0x40, 1, Field.DATA),
    PONG(0x41, 1, Field.DATA),
    SUBSCRIBE_FROM(0x42, 2, Field.NAME, Field.SUBSCRIBER, Field.NUMBER, Field.OFFSET),
    STORED(0x43, 2, Field.SUBSCRIBER, Field.OFFSET),
    TOKEN(0x44, 4, Field.NAME, Field.DATA),
    COMPRESS(0x45, 6, Field.NUMBER),
    COMPRESS_ACK(0x46, 6, Field.NUMBER),
    BLOCK(0x47, 6, Field.PART),
    ANNOUNCE(0x48, 7, Field.NAME, Field.INSTANCE, Field.NUMBER),
    LIMITS(0x49, 8, Field.NUMBER);

    /** What a field is on the wire; each has its place in {@link Message}. */
    enum Field {
        VERSION, EXTENSIONS, SUBSCRIBER, NUMBER, OFFSET, SIZE, NAME, TEXT, DATA, INSTANCE, PART,
        ELEMENT, PACKED
    }

    private static final Type[] OF_CODE = new Type[256];

    static {
        for (Type each : values()) {
            OF_CODE[each.code] = each;
        }
    }

    final int code;
    /** Without it in use the message must not be sent; 0: it belongs to none. */
    final int extension;
    final Field[] fields;

    Type(int code, int extension, Field... fields) {
        this.code = code;
        this.extension = extension;
        this.fields = fields;
    }

    static Type of(int code) throws Violation {
        Type found = OF_CODE[code];
        if (found == null) {
            throw new Violation("unknown type " + code);
        }
        return found;
    }
}
