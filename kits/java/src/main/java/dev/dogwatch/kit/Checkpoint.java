package dev.dogwatch.kit;

import com.fasterxml.jackson.annotation.JsonIgnoreProperties;
import io.fabric8.kubernetes.api.model.GenericKubernetesResource;
import io.fabric8.kubernetes.client.KubernetesClient;

/** A state of a world that can be returned to. */
public final class Checkpoint {
    private final KubernetesClient main;
    private final String name;
    private final long revision;

    Checkpoint(KubernetesClient main, GenericKubernetesResource made) {
        this.main = main;
        this.name = made.getMetadata().getName();
        this.revision = Long.parseLong(made.get("status", "revision"));
    }

    public String name() {
        return name;
    }

    public long revision() {
        return revision;
    }

    /** How many objects a rewind has changed. */
    @JsonIgnoreProperties(ignoreUnknown = true)
    public record Rewound(String revision, int deleted, int modified, int added) {}

    public Rewound rewind() {
        String path = "/apis/" + Lab.GROUP + "/v1/checkpoints/" + name + "/rewind";
        String answer = main.raw(path, "POST", "{}");
        GenericKubernetesResource object = main.getKubernetesSerialization().unmarshal(answer, GenericKubernetesResource.class);
        return main.getKubernetesSerialization().convertValue(object.get("status", "lastRewind"), Rewound.class);
    }

    public void delete() {
        main.genericKubernetesResources(Lab.definition("checkpoints", "Checkpoint")).withName(name).delete();
    }
}
