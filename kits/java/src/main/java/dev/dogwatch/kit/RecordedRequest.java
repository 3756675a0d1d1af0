package dev.dogwatch.kit;

import com.fasterxml.jackson.annotation.JsonIgnoreProperties;

/** One request of the recent past. */
@JsonIgnoreProperties(ignoreUnknown = true)
public record RecordedRequest(
        String time,
        String verb,
        int code,
        String group,
        String resource,
        String namespace,
        String name,
        String user,
        String userAgent,
        long latencyMicroseconds) {}
