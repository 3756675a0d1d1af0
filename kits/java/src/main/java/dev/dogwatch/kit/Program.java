package dev.dogwatch.kit;

import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Map;

/** Finds the program. */
final class Program {
    private Program() {}

    /** Returns the path of the program: the value of DOGWATCH, or the program on PATH. */
    static Path find(Map<String, String> environment) {
        String named = environment.getOrDefault("DOGWATCH", "");
        if (!named.isEmpty()) {
            Path file = Path.of(named);
            if (!Files.isExecutable(file)) {
                throw new IllegalStateException("DOGWATCH names " + named + ", which is not a program");
            }
            return file;
        }
        String[] folders = environment.getOrDefault("PATH", "").split(File.pathSeparator);
        return Arrays.stream(folders)
                .filter(folder -> !folder.isEmpty())
                .map(folder -> Path.of(folder, "dogwatch"))
                .filter(Files::isExecutable)
                .findFirst()
                .orElseThrow(() -> new IllegalStateException(
                        "dogwatch is not installed: set DOGWATCH to the path of the program, or put it on PATH"));
    }
}
