package dev.dogwatch.kit;

import io.fabric8.kubernetes.client.Config;
import io.fabric8.kubernetes.client.ConfigBuilder;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.math.BigInteger;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.SecureRandom;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.stream.Stream;

/** A running server with its objects in memory. It has the powers of the lab over {@code main}. */
public final class Server extends Lab implements AutoCloseable {
    /** Far longer than a start takes, so that only a hang reaches it. */
    private static final long START_TIMEOUT_SECONDS = 60;

    private static final long STOP_TIMEOUT_SECONDS = 10;
    /** Characters of the messages of the server that an error has at most. */
    private static final int TAIL = 4096;
    private static final int TOKEN_BITS = 256;
    /** The exit code of a server with faults that did not hit as often as they were expected to. */
    private static final int UNMET = 3;

    /**
     * The settings of a server.
     *
     * @param controllers whether the controllers, the scheduler and simulated nodes run in {@code main}
     * @param flags more flags of {@code dogwatch up}
     */
    public record Options(boolean controllers, List<String> flags) {
        /** Only clients change objects. */
        public static final Options DEFAULT = new Options(false, List.of());
    }

    private final Running running;

    private Server(Running running, Config config) {
        super("main", running.kubeconfig(), config, null);
        this.running = running;
    }

    /** Starts a server without controllers and waits until it is ready. */
    public static Server start() {
        return start(Options.DEFAULT);
    }

    /** Starts a server and waits until it is ready. */
    public static Server start(Options options) {
        Path program = Program.find(System.getenv());
        Running running = Running.start(program, options);
        try {
            running.awaitReady(program);
            return new Server(running, running.config());
        } catch (IOException error) {
            running.end();
            throw new UncheckedIOException(error);
        } catch (RuntimeException error) {
            running.end();
            throw error;
        }
    }

    /** Ends the server. An expectation of a fault in {@code main} that was not met is an error. */
    @Override
    public void close() {
        closeClient();
        running.stop();
    }

    /** The process. */
    private record Running(Process process, Path folder, String token, CompletableFuture<Boolean> ready, Thread hook) {
        static Running start(Path program, Options options) {
            try {
                Path folder = Files.createTempDirectory("dogwatch-");
                String token = new BigInteger(TOKEN_BITS, new SecureRandom()).toString(Character.MAX_RADIX);
                Path tokens = folder.resolve("tokens");
                Files.writeString(tokens, token + ",dogwatch-kit,dogwatch-kit,\"system:masters\"\n");
                List<String> command = new ArrayList<>(List.of(
                        program.toString(), "up", "--memory", "--listen", "127.0.0.1:0", "--lab",
                        "--data-dir", folder.resolve("data").toString(), "--token-file", tokens.toString()));
                if (!options.controllers()) {
                    command.add("--no-controllers");
                }
                command.addAll(options.flags());
                // A file, and not a pipe: the server never waits for a reader.
                ProcessBuilder builder = new ProcessBuilder(command).redirectError(folder.resolve("stderr").toFile());
                Process process = builder.start();
                Thread hook = new Thread(process::destroyForcibly);
                Runtime.getRuntime().addShutdownHook(hook);
                CompletableFuture<Boolean> ready = new CompletableFuture<>();
                Thread reader = new Thread(() -> read(process, ready), "dogwatch-output");
                reader.setDaemon(true);
                reader.start();
                return new Running(process, folder, token, ready, hook);
            } catch (IOException error) {
                throw new UncheckedIOException(program + " does not start", error);
            }
        }

        Path kubeconfig() {
            return folder.resolve("data").resolve("kubeconfig");
        }

        /** With a token: the fabric8 client does not read the key of the kubeconfig, which is one of elliptic curves. */
        Config config() throws IOException {
            return new ConfigBuilder(Config.fromKubeconfig(Files.readString(kubeconfig())))
                    .withClientCertData(null).withClientKeyData(null).withOauthToken(token).build();
        }

        /** Goes on reading after the start, so that the server never waits for a reader. */
        private static void read(Process process, CompletableFuture<Boolean> ready) {
            try (BufferedReader lines = process.inputReader()) {
                for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                    if (line.contains("ready in ")) {
                        ready.complete(true);
                    }
                }
            } catch (IOException closed) {
                // The process has ended.
            }
            ready.complete(false);
        }

        void awaitReady(Path program) {
            try {
                if (!ready.get(START_TIMEOUT_SECONDS, TimeUnit.SECONDS)) {
                    process.waitFor(STOP_TIMEOUT_SECONDS, TimeUnit.SECONDS);
                    throw new IllegalStateException(program + " ended during its start: " + messages());
                }
            } catch (TimeoutException late) {
                String why = program + " is not ready after " + START_TIMEOUT_SECONDS + " s: " + messages();
                throw new IllegalStateException(why, late);
            } catch (ExecutionException error) {
                throw new IllegalStateException(error);
            } catch (InterruptedException interrupted) {
                Thread.currentThread().interrupt();
                throw new IllegalStateException("interrupted during the start of " + program, interrupted);
            }
        }

        private String messages() {
            try {
                String text = Files.readString(folder.resolve("stderr")).strip();
                return text.substring(Math.max(0, text.length() - TAIL));
            } catch (IOException error) {
                return error.toString();
            }
        }

        void stop() {
            boolean inTime = terminate();
            String messages = messages();
            end();
            if (!inTime) {
                throw new IllegalStateException("dogwatch had to be killed: " + messages);
            }
            if (process.exitValue() == UNMET) {
                throw new AssertionError(messages);
            }
        }

        private boolean terminate() {
            process.destroy();
            try {
                return process.waitFor(STOP_TIMEOUT_SECONDS, TimeUnit.SECONDS);
            } catch (InterruptedException interrupted) {
                Thread.currentThread().interrupt();
                return false;
            }
        }

        /** Ends the process in any case and removes its files. */
        void end() {
            process.destroyForcibly().onExit().join();
            try {
                Runtime.getRuntime().removeShutdownHook(hook);
            } catch (IllegalStateException exiting) {
                // The hook runs.
            }
            try (Stream<Path> files = Files.walk(folder)) {
                files.sorted(Comparator.reverseOrder()).map(Path::toFile).forEach(java.io.File::delete);
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }
    }
}
