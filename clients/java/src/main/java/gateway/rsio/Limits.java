package gateway.rsio;

/** The most of what a peer may declare or leave unfinished; `docs/rsio-v0.md` says what each costs. */
record Limits(int elementBytes) {
    static final int EXTENSIONS = 64;
    static final int NAME_BYTES = 255;
    static final int TEXT_BYTES = 4096;
    static final int INSTANCE_BYTES = 64;
    static final int PART_BYTES = 1 << 20;
    static final int DECLARED_BYTES = 16 << 20;
    static final int UNFINISHED_ELEMENTS = 64;
    static final int UNFINISHED_BYTES = 16 << 20;
    static final int INFLATED_BYTES = 16 << 20;
    static final int STREAMS = 256;
    static final int CONTROL_MESSAGES = 1 << 14;
    static final int CONTROL_MESSAGES_PER_SECOND = 100;
    /** Cancelled streams whose late elements are still dropped. */
    static final int REMEMBERED = 1 << 16;
}
