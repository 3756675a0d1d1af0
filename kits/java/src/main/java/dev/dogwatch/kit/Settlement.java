package dev.dogwatch.kit;

import com.fasterxml.jackson.annotation.JsonIgnoreProperties;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** The answer to a settlement; {@code busy} says who still writes if it is not settled. */
@JsonIgnoreProperties(ignoreUnknown = true)
public record Settlement(boolean settled, long revision, String waited, long changes, Map<String, Object> busy) {

    /**
     * What to wait for.
     *
     * @param quiet how long nothing may be written
     * @param timeout the longest wait, at most 50 seconds
     * @param clients user agents whose watches are waited for; all if it is empty
     */
    public record Spec(Duration quiet, Duration timeout, List<String> clients) {
        public static final Spec DEFAULT = new Spec(Duration.ofMillis(200), Duration.ofSeconds(30), List.of());

        public static Spec quiet(Duration quiet) {
            return new Spec(quiet, DEFAULT.timeout, List.of());
        }

        public Spec timeout(Duration longest) {
            return new Spec(quiet, longest, clients);
        }

        public Spec clients(String... userAgents) {
            return new Spec(quiet, timeout, List.of(userAgents));
        }

        Map<String, Object> toMap() {
            Map<String, Object> spec = new LinkedHashMap<>();
            spec.put("quiet", Durations.text(quiet));
            spec.put("timeout", Durations.text(timeout));
            if (!clients.isEmpty()) {
                spec.put("clients", clients);
            }
            return spec;
        }
    }
}
