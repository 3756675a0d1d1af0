package dev.dogwatch.kit;

import com.fasterxml.jackson.annotation.JsonIgnoreProperties;
import io.fabric8.kubernetes.api.model.GenericKubernetesResource;
import io.fabric8.kubernetes.client.dsl.Resource;
import io.fabric8.kubernetes.client.dsl.base.PatchContext;
import io.fabric8.kubernetes.client.dsl.base.PatchType;
import java.time.Duration;
import java.time.Instant;
import java.util.List;

/** The time of a world. */
public final class Clock {
    private final Lab lab;

    Clock(Lab lab) {
        this.lab = lab;
    }

    /** A moment at which something is due, and who waits for it. */
    @JsonIgnoreProperties(ignoreUnknown = true)
    public record Moment(String at, String who) {}

    /** The moments that an advance has gone through; if it is not complete, advance again. */
    @JsonIgnoreProperties(ignoreUnknown = true)
    public record Advanced(int moments, List<Moment> due, boolean complete) {}

    /** What the clock showed when it was last written. */
    @JsonIgnoreProperties(ignoreUnknown = true)
    public record Status(String now, Moment next, Advanced advanced) {}

    public Status status() {
        return lab.convert(object().require(), Status.class);
    }

    /** The time of the last write of the clock: what a stopped clock shows. */
    public Instant now() {
        return Instant.parse(status().now());
    }

    public Status stop() {
        return write("{\"mode\": \"Stopped\"}");
    }

    /** Stops the clock at a later time. */
    public Status stopAt(Instant later) {
        return write("{\"mode\": \"Stopped\", \"now\": \"" + later + "\"}");
    }

    /** Lets the clock run as the machine's. */
    public Status run() {
        return write("{\"mode\": \"Real\", \"rate\": null, \"now\": null}");
    }

    /** Lets the clock run so many times as fast as the machine's. */
    public Status run(double rate) {
        return write("{\"mode\": \"Scaled\", \"rate\": " + rate + "}");
    }

    /** Moves a stopped clock; returns when everything that became due has begun. */
    public Status advance(Duration by) {
        return write("{\"advance\": \"" + Durations.text(by) + "\"}");
    }

    /** Moves a stopped clock to the next moment at which something is due. */
    public Status advanceToNext() {
        return write("{\"advanceToNext\": true}");
    }

    private Status write(String spec) {
        PatchContext merge = PatchContext.of(PatchType.JSON_MERGE);
        return lab.convert(object().patch(merge, "{\"spec\": " + spec + "}"), Status.class);
    }

    private Resource<GenericKubernetesResource> object() {
        return lab.resources("clocks", "Clock").withName("world");
    }
}
