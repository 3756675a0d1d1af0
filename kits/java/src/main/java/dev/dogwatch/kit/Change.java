package dev.dogwatch.kit;

import com.fasterxml.jackson.annotation.JsonIgnoreProperties;
import java.util.List;
import java.util.Map;
import java.util.Set;

/** One revision of one object: who wrote it, and which fields. */
@JsonIgnoreProperties(ignoreUnknown = true)
public record Change(
        String time,
        long revision,
        String type,
        String group,
        String resource,
        String kind,
        String namespace,
        String name,
        String uid,
        List<String> owners,
        String user,
        String userAgent,
        String manager,
        Long after,
        Map<String, Object> fields) {

    boolean isOwnedBy(Set<String> uids) {
        return owners != null && owners.stream().anyMatch(uids::contains);
    }
}
