package gateway.rsio;

/** The peer did what the protocol does not allow: the conversation ends. */
final class Violation extends Exception {
    Violation(String why) {
        super(why, null, false, false);
    }
}
