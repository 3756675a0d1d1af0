package dev.dogwatch.kit;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.fabric8.kubernetes.api.model.ConfigMap;
import io.fabric8.kubernetes.api.model.ConfigMapBuilder;
import io.fabric8.kubernetes.client.Config;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientException;
import io.fabric8.kubernetes.client.Watch;
import io.fabric8.kubernetes.client.WatcherException;
import java.nio.file.Files;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

/** Starting and stopping the program; worlds. */
@ExtendWith(DogwatchExtension.class)
class KitTest {
    @Test
    void serverThatEndsEarlyIsAnErrorWithItsMessage() {
        Server.Options options = new Server.Options(true, List.of("--controllers", "coffee"));
        assertContains("coffee", assertThrows(IllegalStateException.class, () -> Server.start(options)));
    }

    @Test
    void expectationThatIsNotMetIsAnErrorOfTheStop() {
        Server server = Server.start();
        server.fault(FaultSpec.delay(Duration.ofMillis(1)).verbs("delete").expectHits(1).named("never-hit"));
        assertEquals(List.of("fault never-hit expects 1 hits and has 0"), server.unmet());
        assertContains("never-hit", assertThrows(AssertionError.class, server::close));
        assertFalse(Files.exists(server.kubeconfig()));
    }

    @Test
    void parametersBelongToTheSameWorld(Server server, World world, Config config, KubernetesClient client) {
        assertNotEquals(server.config().getMasterUrl(), config.getMasterUrl());
        assertEquals(world.config().getMasterUrl(), config.getMasterUrl());
        assertEquals(config.getMasterUrl(), client.getConfiguration().getMasterUrl());
    }

    @Test
    void worldsDoNotSeeEachOther(World world, KubernetesClient client) {
        World other = world.fork();
        try (KubernetesClient theirs = other.client()) {
            create(theirs, "only-there");
            other.fault(FaultSpec.error(503));
            other.clock().stop();
            assertNull(client.configMaps().inNamespace("default").withName("only-there").get());
            assertContains("Stopped", assertThrows(
                    KubernetesClientException.class, () -> world.clock().advance(Duration.ofMinutes(1))));
        } finally {
            other.close();
        }
        assertFalse(Files.exists(other.kubeconfig()));
        assertThrows(KubernetesClientException.class, () -> {
            try (KubernetesClient late = other.client()) {
                late.configMaps().inNamespace("default").list();
            }
        });
    }

    @Test
    void busyWorldIsNotSettled(World world, KubernetesClient client) {
        create(client, "one");
        Settlement.Spec spec = Settlement.Spec.quiet(Duration.ofSeconds(10)).timeout(Duration.ofMillis(100));
        assertFalse(assertThrows(NotSettledError.class, () -> world.settle(spec)).settlement().settled());
    }

    @Test
    void watchersAreShown(World world) {
        try (KubernetesClient client = world.client("looker"); Watch watch = client.configMaps().inAnyNamespace().watch(IGNORE)) {
            List<Watcher> watchers = world.watchers(Map.of("userAgent", "looker"));
            assertEquals(List.of("configmaps"), watchers.stream().map(Watcher::resource).toList());
        }
    }

    private static final io.fabric8.kubernetes.client.Watcher<ConfigMap> IGNORE = new io.fabric8.kubernetes.client.Watcher<>() {
        @Override
        public void eventReceived(Action action, ConfigMap map) {}

        @Override
        public void onClose(WatcherException cause) {}
    };

    private static void create(KubernetesClient client, String name) {
        ConfigMap map = new ConfigMapBuilder().withNewMetadata().withName(name).endMetadata().build();
        client.configMaps().inNamespace("default").resource(map).create();
    }

    private static void assertContains(String part, Throwable error) {
        assertTrue(error.getMessage().contains(part), error.getMessage());
    }
}
