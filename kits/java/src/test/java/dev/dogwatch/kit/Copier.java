package dev.dogwatch.kit;

import io.fabric8.kubernetes.api.model.ConfigMap;
import io.fabric8.kubernetes.api.model.ConfigMapBuilder;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientException;
import io.fabric8.kubernetes.client.dsl.Resource;
import io.fabric8.kubernetes.client.informers.ResourceEventHandler;
import io.fabric8.kubernetes.client.informers.SharedIndexInformer;
import java.net.HttpURLConnection;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/** A small operator: keeps a copy of every ConfigMap with the label copy=yes. */
final class Copier implements AutoCloseable, ResourceEventHandler<ConfigMap> {
    static final String NAMESPACE = "default";
    static final String USER_AGENT = "copier";

    private final KubernetesClient client;
    /** One after the other, as the queue of a controller does. */
    private final ExecutorService queue = Executors.newSingleThreadExecutor();

    private final SharedIndexInformer<ConfigMap> informer;

    Copier(World world) {
        client = world.client(USER_AGENT);
        informer = client.configMaps().inNamespace(NAMESPACE).withLabel("copy", "yes").inform(this);
    }

    @Override
    public void onAdd(ConfigMap source) {
        queue.execute(() -> reconcile(source));
    }

    @Override
    public void onUpdate(ConfigMap old, ConfigMap source) {
        queue.execute(() -> reconcile(source));
    }

    @Override
    public void onDelete(ConfigMap source, boolean unknown) {}

    private void reconcile(ConfigMap source) {
        String name = source.getMetadata().getName() + "-copy";
        Resource<ConfigMap> resource = client.configMaps().inNamespace(NAMESPACE).withName(name);
        for (boolean done = false; !done; ) {
            ConfigMap copy = resource.get();
            if (copy == null) {
                ConfigMap wanted = new ConfigMapBuilder()
                        .withNewMetadata().withName(name).endMetadata().withData(source.getData()).build();
                client.configMaps().inNamespace(NAMESPACE).resource(wanted).create();
                done = true;
            } else {
                done = source.getData().equals(copy.getData()) || update(copy, source);
            }
        }
    }

    private boolean update(ConfigMap copy, ConfigMap source) {
        copy.setData(source.getData());
        try {
            client.configMaps().inNamespace(NAMESPACE).resource(copy).update();
            return true;
        } catch (KubernetesClientException error) {
            // Another client was faster: take its copy and try again.
            if (error.getCode() != HttpURLConnection.HTTP_CONFLICT) {
                throw error;
            }
            return false;
        }
    }

    @Override
    public void close() {
        informer.close();
        queue.shutdownNow();
        client.close();
    }
}
