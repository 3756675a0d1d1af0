package dev.dogwatch.kit;

import io.fabric8.kubernetes.client.Config;
import io.fabric8.kubernetes.client.KubernetesClient;
import java.util.List;
import java.util.Set;
import org.junit.jupiter.api.extension.AfterEachCallback;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.ExtensionContext.Namespace;
import org.junit.jupiter.api.extension.ExtensionContext.Store;
import org.junit.jupiter.api.extension.ParameterContext;
import org.junit.jupiter.api.extension.ParameterResolver;

/**
 * Injects parameters of the types {@link Server}, {@link World}, {@link Config} and {@link KubernetesClient}.
 *
 * <p>One server runs for all tests. In a method with {@code @BeforeAll} the world is that of the class; in a test and in a method with
 * {@code @BeforeEach} it is a fork of the class's world, or of the server if the class has none. Worlds are deleted at the end of their
 * test or class. A test fails if an expectation of a fault in its world was not met.
 */
public final class DogwatchExtension implements ParameterResolver, AfterEachCallback {
    private static final Namespace NAMESPACE = Namespace.create(DogwatchExtension.class);
    private static final Set<Class<?>> TYPES = Set.of(Server.class, World.class, Config.class, KubernetesClient.class);
    private static final String OF_CLASS = "world of the class";
    private static final String OF_TEST = "world of the test";

    private final Server.Options options;

    /** For {@code @ExtendWith}: a server without controllers. */
    public DogwatchExtension() {
        this(Server.Options.DEFAULT);
    }

    /** For {@code @RegisterExtension}. Classes with equal options share a server. */
    public DogwatchExtension(Server.Options options) {
        this.options = options;
    }

    @Override
    public boolean supportsParameter(ParameterContext parameter, ExtensionContext context) {
        return TYPES.contains(parameter.getParameter().getType());
    }

    @Override
    public Object resolveParameter(ParameterContext parameter, ExtensionContext context) {
        Class<?> type = parameter.getParameter().getType();
        if (type == Server.class) {
            return server(context);
        }
        World world = world(context);
        if (type == World.class) {
            return world;
        }
        return type == Config.class ? world.config() : client(context, world);
    }

    @Override
    public void afterEach(ExtensionContext context) {
        World world = context.getStore(NAMESPACE).get(OF_TEST, World.class);
        List<String> unmet = world == null ? List.of() : world.unmet();
        if (!unmet.isEmpty()) {
            throw new AssertionError(String.join("; ", unmet));
        }
    }

    // JUnit closes what is in a store when the test, the class or the run ends that the store belongs to.

    private Server server(ExtensionContext context) {
        Store store = context.getRoot().getStore(NAMESPACE);
        return store.getOrComputeIfAbsent(options, key -> Server.start(options), Server.class);
    }

    private World world(ExtensionContext context) {
        Server server = server(context);
        Store store = context.getStore(NAMESPACE);
        if (context.getTestMethod().isEmpty()) {
            return store.getOrComputeIfAbsent(OF_CLASS, key -> server.fork(), World.class);
        }
        // A lookup in the store of a test goes on in that of its class.
        World ofClass = store.get(OF_CLASS, World.class);
        Lab origin = ofClass == null ? server : ofClass;
        return store.getOrComputeIfAbsent(OF_TEST, key -> origin.fork(), World.class);
    }

    private static KubernetesClient client(ExtensionContext context, World world) {
        Store store = context.getStore(NAMESPACE);
        return store.getOrComputeIfAbsent("client of " + world.name(), key -> world.client(), KubernetesClient.class);
    }
}
