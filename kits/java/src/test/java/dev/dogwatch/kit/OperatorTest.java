package dev.dogwatch.kit;

import static dev.dogwatch.kit.Copier.NAMESPACE;
import static dev.dogwatch.kit.Copier.USER_AGENT;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.fabric8.kubernetes.api.model.ConfigMap;
import io.fabric8.kubernetes.api.model.ConfigMapBuilder;
import io.fabric8.kubernetes.client.KubernetesClient;
import java.time.Duration;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.List;
import java.util.Map;
import java.util.function.BooleanSupplier;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

/** An operator under a conflict, a stale view and a moved clock. */
@ExtendWith(DogwatchExtension.class)
class OperatorTest {
    /** Long enough for an operator on a busy machine to act on an event. */
    private static final Settlement.Spec QUIET = Settlement.Spec.quiet(Duration.ofSeconds(1));

    private Copier copier;

    /** Prepared once; each test gets a fork of it. */
    @BeforeAll
    static void prepare(KubernetesClient client) {
        create(client, "settings", "red");
    }

    @BeforeEach
    void start(World world, KubernetesClient client) {
        copier = new Copier(world);
        // Nothing is written until the operator has read, so a settlement would be answered too early here.
        eventually(() -> "red".equals(colour(client, "settings-copy")));
    }

    @AfterEach
    void stop() {
        copier.close();
    }

    @Test
    void conflictIsTriedAgain(World world, KubernetesClient client) {
        Fault conflict = world.fault(FaultSpec.conflictOnce()
                .verbs("update").resources("configmaps").userAgents(USER_AGENT).expectHits(1));
        paint(client, "green");
        world.settle(QUIET);
        assertEquals("green", colour(client, "settings-copy"));
        assertEquals(1, conflict.hits());
        List<RecordedRequest> refused = world.requests(Map.of("userAgent", USER_AGENT, "code", "409"));
        assertEquals(List.of("update settings-copy"), refused.stream().map(each -> each.verb() + " " + each.name()).toList());
        List<Change> changes = world.changes(Map.of("kind", "ConfigMap", "name", "settings-copy"));
        List<String> writers = changes.stream().filter(each -> "MODIFIED".equals(each.type())).map(Change::userAgent).toList();
        assertEquals(List.of(USER_AGENT), writers);
    }

    @Test
    void staleViewIsCaughtUpWith(World world, KubernetesClient client) {
        try (KubernetesClient seenByCopier = world.client(USER_AGENT)) {
            try (Fault frozen = world.fault(FaultSpec.staleHold().userAgents(USER_AGENT))) {
                paint(client, "green");
                // The watch of the operator is behind on purpose, so only the test's own are waited for.
                world.settle(QUIET.clients("test"));
                assertEquals("green", colour(client, "settings"));
                assertEquals("red", colour(seenByCopier, "settings"));
                assertEquals("red", colour(client, "settings-copy"));
                assertTrue(frozen.hits() >= 1);
            }
            // What was missed is delivered now, and the end of a fault is no write that a settlement waits for.
            eventually(() -> "green".equals(colour(client, "settings-copy")));
            assertEquals("green", colour(seenByCopier, "settings"));
        }
    }

    @Test
    void timeMovesWhenTheTestMovesIt(World world, KubernetesClient client) {
        world.clock().stop();
        Instant before = world.clock().now();
        assertTrue(world.clock().advance(Duration.ofMinutes(10)).advanced().complete());
        Instant now = world.clock().now();
        assertEquals(Duration.ofMinutes(10), Duration.between(before, now));
        create(client, "late", "blue");
        world.settle(QUIET);
        ConfigMap copy = client.configMaps().inNamespace(NAMESPACE).withName("late-copy").require();
        assertEquals(now.truncatedTo(ChronoUnit.SECONDS), Instant.parse(copy.getMetadata().getCreationTimestamp()));
    }

    @Test
    void rewindUndoesWhatTheOperatorDid(World world, KubernetesClient client) {
        Checkpoint before = world.checkpoint();
        paint(client, "green");
        world.settle(QUIET);
        assertEquals("green", colour(client, "settings-copy"));
        assertEquals(2, world.rewind(before).modified());
        world.settle(QUIET);
        assertEquals("red", colour(client, "settings"));
        assertEquals("red", colour(client, "settings-copy"));
    }

    private static void create(KubernetesClient client, String name, String colour) {
        ConfigMap source = new ConfigMapBuilder()
                .withNewMetadata().withName(name).withLabels(Map.of("copy", "yes")).endMetadata()
                .withData(Map.of("colour", colour)).build();
        client.configMaps().inNamespace(NAMESPACE).resource(source).create();
    }

    private static void paint(KubernetesClient client, String colour) {
        client.configMaps().inNamespace(NAMESPACE).withName("settings").edit(source ->
                new ConfigMapBuilder(source).withData(Map.of("colour", colour)).build());
    }

    private static String colour(KubernetesClient client, String name) {
        ConfigMap found = client.configMaps().inNamespace(NAMESPACE).withName(name).get();
        return found == null ? null : found.getData().get("colour");
    }

    private static void eventually(BooleanSupplier condition) {
        Instant deadline = Instant.now().plusSeconds(30);
        while (!condition.getAsBoolean()) {
            assertTrue(Instant.now().isBefore(deadline), "the operator did not act in time");
            try {
                Thread.sleep(20);
            } catch (InterruptedException interrupted) {
                throw new AssertionError(interrupted);
            }
        }
    }
}
