package dev.dogwatch.kit;

import com.fasterxml.jackson.annotation.JsonIgnoreProperties;

/** One running watch, and how far behind it is. */
@JsonIgnoreProperties(ignoreUnknown = true)
public record Watcher(
        String group,
        String resource,
        String user,
        String userAgent,
        String since,
        long lastRevision,
        long revisionsBehind,
        long lagMs,
        long eventsSent) {}
