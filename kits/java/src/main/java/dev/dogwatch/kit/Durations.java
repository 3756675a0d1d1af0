package dev.dogwatch.kit;

import java.time.Duration;

/** Durations as the server reads them. */
final class Durations {
    private Durations() {}

    static String text(Duration duration) {
        return duration.toMillisPart() == 0 ? duration.toSeconds() + "s" : duration.toMillis() + "ms";
    }
}
