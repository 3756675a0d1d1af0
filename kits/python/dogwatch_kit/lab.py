"""The powers over one world. Durations are texts such as "200ms" or "10m"."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from .connection import ApiError, Connection

if TYPE_CHECKING:
    from kubernetes.client import ApiClient


class NotSettled(AssertionError):
    """The world was still busy when the time was up. `status` says with what."""

    def __init__(self, status: dict):
        super().__init__(f"the world is not settled: {yaml.safe_dump(status, sort_keys=False)}")
        self.status = status


class Lab:
    """A world: `main`, which is the server itself, or one beside it."""

    def __init__(self, name: str, kubeconfig: Path, main: Connection | None = None):
        self.name = name
        # A file for other programs and other clients.
        self.kubeconfig = kubeconfig
        self._own = Connection(kubeconfig.read_text())
        # Worlds and checkpoints are objects of main, everything else is in the world that it is about.
        self._main = main or self._own
        self.clock = Clock(self._own)

    @property
    def config(self) -> dict:
        """The kubeconfig as a dict."""
        return yaml.safe_load(self.kubeconfig.read_text())

    @property
    def environment(self) -> dict[str, str]:
        """The environment for a program that reads KUBECONFIG, such as kubectl or kopf."""
        return {**os.environ, "KUBECONFIG": str(self.kubeconfig)}

    def client(self, user_agent: str | None = None) -> ApiClient:
        """A client of the package `kubernetes`. Faults can be limited to a user agent."""
        from kubernetes import config

        client = config.new_client_from_config_dict(self.config)
        if user_agent:
            client.user_agent = user_agent
        return client

    def fault(
        self,
        effect: dict,
        *,
        match: dict | None = None,
        when: dict | None = None,
        expect_hits: int | None = None,
        name: str | None = None,
    ) -> Fault:
        """Makes a fault. The parts are those of `spec` in `kubectl explain fault.spec`."""
        spec = {"match": match or {}, "when": when or {}, "effect": effect}
        if expect_hits is not None:
            spec["expect"] = {"hits": expect_hits}
        return Fault(self._own, self._own.create("faults", "Fault", name, spec)["metadata"]["name"])

    def unmet(self) -> list[str]:
        """What faults were expected to do and did not do."""
        # The status of a fault is written a moment after a hit; the answer to a settlement counts at once.
        at_once = {"quiet": "0s", "timeout": "0s"}
        return self._own.create("settlements", "Settlement", None, at_once)["status"].get("unmet", [])

    def checkpoint(self, name: str | None = None) -> Checkpoint:
        """Keeps the state of the world as it is now."""
        made = self._main.create("checkpoints", "Checkpoint", name, {"world": self.name})
        return Checkpoint(self._main, made)

    def rewind(self, checkpoint: Checkpoint) -> dict:
        """Makes the objects equal to those of a checkpoint; returns how many were deleted, modified and added."""
        return checkpoint.rewind()

    def settle(
        self,
        *,
        quiet: str = "200ms",
        timeout: str = "30s",
        clients: list[str] | None = None,
        ignore: dict | None = None,
    ) -> dict:
        """Waits until nothing was written for `quiet` and every watch was sent what concerns it; returns the status."""
        spec: dict = {"quiet": quiet, "timeout": timeout}
        if clients:
            spec["clients"] = clients
        if ignore:
            spec["ignore"] = ignore
        status = self._own.create("settlements", "Settlement", None, spec)["status"]
        if not status["settled"]:
            raise NotSettled(status)
        return status

    def changes(self, **fields: str) -> list[dict]:
        """The changes of objects, oldest first, for instance `changes(kind="Deployment", name="web")`."""
        return statuses(self._own.list("changes", fields))

    def timeline(self, kind: str, name: str, namespace: str | None = None) -> list[dict]:
        """The changes of an object and of all that it owns, oldest first."""
        changes = self.changes()
        wanted = {"kind": kind, "name": name} | ({"namespace": namespace} if namespace else {})
        known = {change["uid"] for change in changes if wanted.items() <= change.items()}
        # Until no more are found: an owner may be written after what it owns.
        while more := {change["uid"] for change in changes if known.intersection(change.get("owners", []))} - known:
            known |= more
        return [change for change in changes if change["uid"] in known]

    def requests(self, **fields: str) -> list[dict]:
        """The requests of the recent past, for instance `requests(userAgent="my-operator", code="409")`."""
        return statuses(self._own.list("requests", fields))

    def watchers(self, **fields: str) -> list[dict]:
        """The watches that run now, for instance `watchers(userAgent="my-operator")`."""
        return statuses(self._own.list("watchers", fields))


class World(Lab):
    """A world beside the server, deleted by `delete` or at the end of `with`."""

    def fork(self, **options) -> World:
        """A world that begins as this one is now: prepare one world, and fork it for each test."""
        return fork(self._main, self.kubeconfig.parent, self.name, **options)

    def delete(self) -> None:
        try:
            self._main.request("DELETE", f"worlds/{self.name}")
        except ApiError as error:
            if error.code != 404:
                raise
        self.kubeconfig.unlink(missing_ok=True)

    def __enter__(self) -> World:
        return self

    def __exit__(self, *_) -> None:
        self.delete()


def fork(
    main: Connection,
    folder: Path,
    origin: str,
    *,
    name: str | None = None,
    revision: int | None = None,
    controllers: bool = False,
) -> World:
    begin: dict = {"world": origin}
    if revision is not None:
        begin["revision"] = revision
    made = main.create("worlds", "World", name, {"from": begin, "controllers": controllers})
    name = made["metadata"]["name"]
    kubeconfig = folder / f"{name}.kubeconfig"
    kubeconfig.touch(mode=0o600)
    kubeconfig.write_text(made["status"]["kubeconfig"])
    return World(name, kubeconfig, main)


class Fault:
    """A fault that was made; gone at the end of `with`."""

    def __init__(self, connection: Connection, name: str):
        self._connection, self.name = connection, name

    @property
    def status(self) -> dict:
        return self._connection.request("GET", f"faults/{self.name}").get("status", {})

    @property
    def hits(self) -> int:
        return self.status.get("hits", 0)

    def remove(self) -> None:
        self._connection.request("DELETE", f"faults/{self.name}")

    def __enter__(self) -> Fault:
        return self

    def __exit__(self, *_) -> None:
        self.remove()


class Checkpoint:
    """A state of a world that can be returned to."""

    def __init__(self, main: Connection, made: dict):
        self._main, self.name = main, made["metadata"]["name"]
        self.revision = int(made["status"]["revision"])

    def rewind(self) -> dict:
        return self._main.request("POST", f"checkpoints/{self.name}/rewind", {})["status"]["lastRewind"]

    def delete(self) -> None:
        self._main.request("DELETE", f"checkpoints/{self.name}")


class Clock:
    """The time of a world. Each method returns the clock's status."""

    def __init__(self, connection: Connection):
        self._connection = connection

    def status(self) -> dict:
        return self._connection.request("GET", "clocks/world")["status"]

    def now(self) -> datetime:
        """The time of the last write of the clock: what a stopped clock shows."""
        return time_of(self.status()["now"])

    def stop(self, now: str | None = None) -> dict:
        """Stops the clock, at a later time if one is given."""
        return self._write({"mode": "Stopped"} | ({"now": now} if now else {}))

    def run(self, rate: float | None = None) -> dict:
        """Lets the clock run again, `rate` times as fast as the machine's if a rate is given."""
        return self._write({"mode": "Scaled", "rate": rate} if rate else {"mode": "Real", "rate": None, "now": None})

    def advance(self, by: str) -> dict:
        """Moves a stopped clock; returns when everything that became due has begun."""
        return self._write({"advance": by})

    def advance_to_next(self) -> dict:
        """Moves a stopped clock to the next moment at which something is due."""
        return self._write({"advanceToNext": True})

    def _write(self, spec: dict) -> dict:
        media = "application/merge-patch+json"
        return self._connection.request("PATCH", "clocks/world", {"spec": spec}, media)["status"]


def statuses(items: list[dict]) -> list[dict]:
    return [item["status"] for item in items]


def time_of(text: str) -> datetime:
    """Reads a timestamp of the server; Python keeps microseconds only."""
    whole, _, rest = text.removesuffix("Z").partition(".")
    return datetime.fromisoformat(f"{whole}.{rest[:6]:0<6}+00:00")
