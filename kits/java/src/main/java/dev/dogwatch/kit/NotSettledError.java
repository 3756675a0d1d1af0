package dev.dogwatch.kit;

/** The world was still busy when the time was up. */
public final class NotSettledError extends AssertionError {
    private static final long serialVersionUID = 1;
    private final transient Settlement settlement;

    NotSettledError(String status, Settlement settlement) {
        super("the world is not settled:\n" + status);
        this.settlement = settlement;
    }

    public Settlement settlement() {
        return settlement;
    }
}
