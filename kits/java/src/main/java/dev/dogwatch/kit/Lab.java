package dev.dogwatch.kit;

import io.fabric8.kubernetes.api.model.GenericKubernetesResource;
import io.fabric8.kubernetes.api.model.GenericKubernetesResourceBuilder;
import io.fabric8.kubernetes.api.model.GenericKubernetesResourceList;
import io.fabric8.kubernetes.client.Config;
import io.fabric8.kubernetes.client.ConfigBuilder;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import io.fabric8.kubernetes.client.dsl.MixedOperation;
import io.fabric8.kubernetes.client.dsl.Resource;
import io.fabric8.kubernetes.client.dsl.base.ResourceDefinitionContext;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

/** A world: {@code main}, which is the server itself, or one beside it. */
public abstract class Lab {
    static final String GROUP = "lab.dogwatch.dev";
    private static final String USER_AGENT = "dogwatch-kit-java";
    /** A settlement and an advance of the clock are answered within a minute. */
    private static final int TIMEOUT_MS = 90_000;

    private final String name;
    private final Path kubeconfig;
    private final Config base;
    private final KubernetesClient own;
    private final KubernetesClient main;
    private final Clock clock;

    /** Worlds and checkpoints are objects of main, everything else is in the world that it is about. */
    Lab(String name, Path kubeconfig, Config base, KubernetesClient main) {
        this.name = name;
        this.kubeconfig = kubeconfig;
        this.base = base;
        Config config = new ConfigBuilder(config(USER_AGENT)).withRequestTimeout(TIMEOUT_MS).build();
        this.own = new KubernetesClientBuilder().withConfig(config).build();
        this.main = main == null ? own : main;
        this.clock = new Clock(this);
    }

    public final String name() {
        return name;
    }

    /** The path of a kubeconfig for other programs. */
    public final Path kubeconfig() {
        return kubeconfig;
    }

    public final Config config() {
        return new ConfigBuilder(base).build();
    }

    /** A configuration whose clients have this user agent, so that faults can name it. */
    public final Config config(String userAgent) {
        return new ConfigBuilder(base).withUserAgent(userAgent).build();
    }

    /** A client, which the caller closes. */
    public final KubernetesClient client() {
        return new KubernetesClientBuilder().withConfig(config()).build();
    }

    /** A client with this user agent, which the caller closes. */
    public final KubernetesClient client(String userAgent) {
        return new KubernetesClientBuilder().withConfig(config(userAgent)).build();
    }

    /** A world that begins as this one is now. */
    public final World fork() {
        return fork(false);
    }

    /** A world that begins as this one is now, with the built-in controllers if asked for. */
    public final World fork(boolean controllers) {
        Map<String, Object> spec = Map.of("from", Map.of("world", name), "controllers", controllers);
        GenericKubernetesResource made = create(main, "worlds", "World", null, spec);
        String forked = made.getMetadata().getName();
        String config = (String) status(made).get("kubeconfig");
        try {
            Path file = kubeconfig.resolveSibling(forked + ".kubeconfig");
            Files.writeString(file, config);
            return new World(forked, file, Config.fromKubeconfig(config), main);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    public final Fault fault(FaultSpec spec) {
        return new Fault(this, create(own, "faults", "Fault", spec.name(), spec.toMap()).getMetadata().getName());
    }

    /** What faults were expected to do and did not do. */
    public final List<String> unmet() {
        // The status of a fault is written a moment after a hit; the answer to a settlement counts at once.
        Settlement.Spec atOnce = Settlement.Spec.quiet(Duration.ZERO).timeout(Duration.ZERO);
        List<String> unmet = create(own, "settlements", "Settlement", null, atOnce.toMap()).get("status", "unmet");
        return unmet == null ? List.of() : unmet;
    }

    /** Keeps the state of the world as it is now. */
    public final Checkpoint checkpoint() {
        return new Checkpoint(main, create(main, "checkpoints", "Checkpoint", null, Map.of("world", name)));
    }

    /** Makes the objects equal to those of a checkpoint. */
    public final Checkpoint.Rewound rewind(Checkpoint checkpoint) {
        return checkpoint.rewind();
    }

    public final Clock clock() {
        return clock;
    }

    /** Waits until nothing was written for 200 ms and every watch was sent what concerns it. */
    public final Settlement settle() {
        return settle(Settlement.Spec.DEFAULT);
    }

    /**
     * Waits until nothing is written any more.
     *
     * @throws NotSettledError if the time is up before
     */
    public final Settlement settle(Settlement.Spec spec) {
        GenericKubernetesResource answer = create(own, "settlements", "Settlement", null, spec.toMap());
        Settlement settlement = convert(answer, Settlement.class);
        if (!settlement.settled()) {
            throw new NotSettledError(own.getKubernetesSerialization().asYaml(status(answer)), settlement);
        }
        return settlement;
    }

    /** The changes of objects, oldest first, for instance {@code Map.of("kind", "Deployment", "name", "web")}. */
    public final List<Change> changes(Map<String, String> fields) {
        return list("changes", "Change", fields, Change.class);
    }

    /** The changes of an object and of all that it owns, oldest first. */
    public final List<Change> timeline(String kind, String name, String namespace) {
        List<Change> changes = changes(Map.of());
        Set<String> known = new HashSet<>();
        for (Change change : changes) {
            boolean isThere = namespace == null || namespace.equals(change.namespace());
            if (isThere && kind.equals(change.kind()) && name.equals(change.name())) {
                known.add(change.uid());
            }
        }
        // Until no more are found: an owner may be written after what it owns.
        for (int size = -1; size != known.size(); ) {
            size = known.size();
            changes.stream().filter(change -> change.isOwnedBy(known)).forEach(change -> known.add(change.uid()));
        }
        return changes.stream().filter(change -> known.contains(change.uid())).toList();
    }

    /** The requests of the recent past, for instance {@code Map.of("userAgent", "my-operator", "code", "409")}. */
    public final List<RecordedRequest> requests(Map<String, String> fields) {
        return list("requests", "Request", fields, RecordedRequest.class);
    }

    /** The watches that run now. */
    public final List<Watcher> watchers(Map<String, String> fields) {
        return list("watchers", "Watcher", fields, Watcher.class);
    }

    final KubernetesClient main() {
        return main;
    }

    final void closeClient() {
        own.close();
    }

    final MixedOperation<GenericKubernetesResource, GenericKubernetesResourceList, Resource<GenericKubernetesResource>>
            resources(String plural, String kind) {
        return own.genericKubernetesResources(definition(plural, kind));
    }

    final <T> T convert(GenericKubernetesResource object, Class<T> type) {
        return own.getKubernetesSerialization().convertValue(status(object), type);
    }

    private <T> List<T> list(String plural, String kind, Map<String, String> fields, Class<T> type) {
        GenericKubernetesResourceList found = resources(plural, kind).withFields(fields).list();
        return found.getItems().stream().map(item -> convert(item, type)).toList();
    }

    private static GenericKubernetesResource create(
            KubernetesClient client, String plural, String kind, String name, Map<String, Object> spec) {
        GenericKubernetesResource object = new GenericKubernetesResourceBuilder()
                .withApiVersion(GROUP + "/v1").withKind(kind)
                .withNewMetadata().withName(name).withGenerateName(name == null ? "kit-" : null).endMetadata()
                .withAdditionalProperties(new LinkedHashMap<>(Map.of("spec", spec)))
                .build();
        return client.genericKubernetesResources(definition(plural, kind)).resource(object).create();
    }

    static ResourceDefinitionContext definition(String plural, String kind) {
        return new ResourceDefinitionContext.Builder()
                .withGroup(GROUP).withVersion("v1").withPlural(plural).withKind(kind).withNamespaced(false).build();
    }

    static Map<String, Object> status(GenericKubernetesResource object) {
        Map<String, Object> status = object.get("status");
        return status == null ? Map.of() : status;
    }
}
