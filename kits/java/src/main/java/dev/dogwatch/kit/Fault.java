package dev.dogwatch.kit;

import java.util.Map;

/** A fault that was made. {@link #close} removes it. */
public final class Fault implements AutoCloseable {
    private final Lab lab;
    private final String name;

    Fault(Lab lab, String name) {
        this.lab = lab;
        this.name = name;
    }

    public String name() {
        return name;
    }

    /** How many requests or events it has hit. */
    public long hits() {
        Object hits = status().get("hits");
        return hits instanceof Number number ? number.longValue() : 0;
    }

    public Map<String, Object> status() {
        return Lab.status(lab.resources("faults", "Fault").withName(name).require());
    }

    public void remove() {
        lab.resources("faults", "Fault").withName(name).delete();
    }

    @Override
    public void close() {
        remove();
    }
}
