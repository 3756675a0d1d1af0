"""Finds, starts and stops the program."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import threading
from pathlib import Path

from .lab import Lab, World, fork

# Far longer than a start takes, so that only a hang reaches it.
START_TIMEOUT_SECONDS = 60
STOP_TIMEOUT_SECONDS = 10
# The exit code of a server with faults that did not hit as often as they were expected to.
UNMET = 3


class NotFound(Exception):
    """There is no program to start."""


class StartError(Exception):
    """The server ended before it was ready, or it was not ready in time."""


class StopError(Exception):
    """The server had to be killed, or an expectation of a fault in main was not met."""


def find() -> str:
    """Returns the path of the program: the value of DOGWATCH, or the program on PATH."""
    named = os.environ.get("DOGWATCH")
    if named:
        if not Path(named).is_file():
            raise NotFound(f"DOGWATCH names {named}, which does not exist")
        return named
    found = shutil.which("dogwatch")
    if not found:
        raise NotFound("dogwatch is not installed: set DOGWATCH to the path of the program, or put it on PATH")
    return found


class Server(Lab):
    """A running server with its objects in memory. It has the powers of the lab over `main`."""

    def __init__(self, *, controllers: bool = False, flags: list[str] | None = None):
        program = find()
        self._folder = tempfile.TemporaryDirectory(prefix="dogwatch-")
        folder = Path(self._folder.name)
        args = [program, "up", "--memory", "--listen", "127.0.0.1:0", "--lab", "--data-dir", str(folder / "data")]
        if not controllers:
            args.append("--no-controllers")
        # A file, and not a pipe: the server never waits for a reader.
        self._messages = folder / "stderr"
        with self._messages.open("wb") as messages:
            try:
                self._process = subprocess.Popen(
                    [*args, *(flags or [])], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=messages
                )
            except OSError as error:
                self._folder.cleanup()
                raise StartError(f"{program} does not start: {error}") from error
        try:
            self._await_ready(program)
            super().__init__("main", folder / "data" / "kubeconfig")
        except BaseException:
            self._end()
            raise

    def _await_ready(self, program: str) -> None:
        ready, ended = threading.Event(), threading.Event()

        def read() -> None:
            # Goes on reading after the start, so that the server never waits for a reader.
            for line in self._process.stdout:
                if b"ready in " in line:
                    ready.set()
            ended.set()
            ready.set()

        threading.Thread(target=read, name="dogwatch-output", daemon=True).start()
        if not ready.wait(START_TIMEOUT_SECONDS):
            raise StartError(f"{program} is not ready after {START_TIMEOUT_SECONDS} s: {self._printed()}")
        if ended.is_set():
            self._process.wait(STOP_TIMEOUT_SECONDS)
            raise StartError(f"{program} ended during its start: {self._printed()}")

    def _printed(self) -> str:
        return self._messages.read_text(errors="replace")[-4096:].strip()

    def fork(self, **options) -> World:
        """A world that begins as the server is now. Options: `name`, `revision`, `controllers`."""
        return fork(self._main, Path(self._folder.name), "main", **options)

    def stop(self) -> None:
        """Ends the server. An expectation of a fault in main that was not met is an error."""
        code, printed = self._end()
        if code == UNMET:
            raise StopError(printed)
        if code == -signal.SIGKILL:
            raise StopError(f"dogwatch did not end within {STOP_TIMEOUT_SECONDS} s and was killed: {printed}")

    def _end(self) -> tuple[int, str]:
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        printed = self._printed() if self._messages.exists() else ""
        self._folder.cleanup()
        return self._process.returncode, printed

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_) -> None:
        self.stop()
