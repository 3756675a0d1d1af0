package dev.dogwatch.kit;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Finding the program; needs no server. */
class ProgramTest {
    @Test
    void withoutAProgramTheErrorNamesTheVariable(@TempDir Path folder) throws IOException {
        Map<String, String> path = Map.of("PATH", folder.toString());
        assertContains("set DOGWATCH to the path", assertThrows(IllegalStateException.class, () -> Program.find(path)));
        Map<String, String> wrong = Map.of("DOGWATCH", folder.resolve("missing").toString());
        assertContains("DOGWATCH names", assertThrows(IllegalStateException.class, () -> Program.find(wrong)));
        Path program = Files.writeString(folder.resolve("dogwatch"), "#!/bin/sh\n");
        assertTrue(program.toFile().setExecutable(true));
        assertEquals(program, Program.find(path));
    }

    private static void assertContains(String part, Throwable error) {
        assertTrue(error.getMessage().contains(part), error.getMessage());
    }
}
