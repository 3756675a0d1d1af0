package dev.dogwatch.kit;

import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** What goes wrong, and for which requests. Made by one of the effects, for instance {@code FaultSpec.error(503).verbs("list")}. */
public final class FaultSpec {
    private final Map<String, Object> effect;
    private final Map<String, Object> match = new LinkedHashMap<>();
    private final Map<String, Object> when = new LinkedHashMap<>();
    private Integer hits;
    private String name;

    private FaultSpec(String effect, Object value) {
        this.effect = Map.of(effect, value);
    }

    /** The answer is an error with this code; nothing is done. */
    public static FaultSpec error(int code) {
        return new FaultSpec("error", Map.of("code", code));
    }

    /** The answer is an error with this reason, such as {@code Conflict}; nothing is done. */
    public static FaultSpec error(String reason) {
        return new FaultSpec("error", Map.of("reason", reason));
    }

    /** The first update of each object is answered with a conflict. */
    public static FaultSpec conflictOnce() {
        return new FaultSpec("conflictOnce", Map.of());
    }

    /** Answers and events come later. */
    public static FaultSpec delay(Duration delay) {
        return new FaultSpec("delay", Durations.text(delay));
    }

    /** A write is done, and its answer is lost. */
    public static FaultSpec loseAnswer() {
        return new FaultSpec("loseAnswer", Map.of());
    }

    /** Reads and watches show the state of now until the fault is removed. */
    public static FaultSpec staleHold() {
        return new FaultSpec("stale", Map.of("hold", true));
    }

    /** Reads and watches show the state of so many revisions ago. */
    public static FaultSpec staleByRevisions(int revisions) {
        return new FaultSpec("stale", Map.of("by", Map.of("revisions", revisions)));
    }

    /** Reads and watches show the state of so long ago. */
    public static FaultSpec staleBy(Duration age) {
        return new FaultSpec("stale", Map.of("by", Map.of("duration", Durations.text(age))));
    }

    /** A watch ends: cleanly between two events, or abruptly. */
    public static FaultSpec cut(boolean abruptly) {
        return new FaultSpec("cut", Map.of("abruptly", abruptly));
    }

    /** A watch stays open and sends nothing until the fault is removed. */
    public static FaultSpec silence() {
        return new FaultSpec("silence", Map.of());
    }

    /** The history is gone: 410 as the answer of a watch, or as an event in it. */
    public static FaultSpec expire(boolean asEvent) {
        return new FaultSpec("expire", Map.of("form", asEvent ? "event" : "status"));
    }

    public static FaultSpec withholdBookmarks() {
        return new FaultSpec("withholdBookmarks", Map.of());
    }

    /** Events of these types never come on a watch. */
    public static FaultSpec dropEvents(String... types) {
        return new FaultSpec("dropEvents", Map.of("types", List.of(types)));
    }

    /** Of several changes in quick succession a watch sends the last only. */
    public static FaultSpec skipIntermediate() {
        return new FaultSpec("skipIntermediate", true);
    }

    public static FaultSpec slow(int bytesPerSecond) {
        return new FaultSpec("slow", Map.of("bytesPerSecond", bytesPerSecond));
    }

    public FaultSpec verbs(String... verbs) {
        return match("verbs", verbs);
    }

    /** Resources such as {@code pods}, {@code deployments.apps} or {@code deployments.apps/status}. */
    public FaultSpec resources(String... resources) {
        return match("resources", resources);
    }

    public FaultSpec namespaces(String... namespaces) {
        return match("namespaces", namespaces);
    }

    public FaultSpec names(String... names) {
        return match("names", names);
    }

    /** User agents with {@code *} for any text. */
    public FaultSpec userAgents(String... userAgents) {
        return match("userAgents", userAgents);
    }

    public FaultSpec users(String... users) {
        return match("users", users);
    }

    /** Lets so many pass first. */
    public FaultSpec skip(int count) {
        return when("skip", count);
    }

    /** Hits so many, then no more. */
    public FaultSpec times(int count) {
        return when("times", count);
    }

    public FaultSpec every(int count) {
        return when("every", count);
    }

    /** Hits with this probability; the same seed and order of requests give the same hits. */
    public FaultSpec probability(double probability, long seed) {
        return when("probability", probability).when("seed", seed);
    }

    /** For effects on a watch: counts events of these types only. */
    public FaultSpec events(String... types) {
        return when("events", Map.of("types", List.of(types)));
    }

    /** The test fails if there are not so many hits. */
    public FaultSpec expectHits(int count) {
        hits = count;
        return this;
    }

    /** A name in place of a generated one. */
    public FaultSpec named(String wanted) {
        name = wanted;
        return this;
    }

    private FaultSpec match(String part, String... values) {
        match.put(part, List.of(values));
        return this;
    }

    private FaultSpec when(String part, Object value) {
        when.put(part, value);
        return this;
    }

    String name() {
        return name;
    }

    Map<String, Object> toMap() {
        Map<String, Object> spec = new LinkedHashMap<>(Map.of("match", match, "when", when, "effect", effect));
        if (hits != null) {
            spec.put("expect", Map.of("hits", hits));
        }
        return spec;
    }
}
