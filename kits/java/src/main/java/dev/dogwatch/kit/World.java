package dev.dogwatch.kit;

import io.fabric8.kubernetes.client.Config;
import io.fabric8.kubernetes.client.KubernetesClient;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;

/** A world beside the server. {@link #close} deletes it, which ends its watches. */
public final class World extends Lab implements AutoCloseable {
    World(String name, Path kubeconfig, Config base, KubernetesClient main) {
        super(name, kubeconfig, base, main);
    }

    @Override
    public void close() {
        main().genericKubernetesResources(definition("worlds", "World")).withName(name()).delete();
        closeClient();
        try {
            Files.deleteIfExists(kubeconfig());
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
