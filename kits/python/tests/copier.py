"""A small operator: keeps a copy of every ConfigMap with the label copy=yes."""

import threading

from kubernetes import watch
from kubernetes.client import ApiException, CoreV1Api

NAMESPACE = "default"
USER_AGENT = "copier"


class Copier(threading.Thread):
    """Runs until its world is deleted, which ends its watch."""

    def __init__(self, world):
        super().__init__(name=USER_AGENT, daemon=True)
        self.maps = CoreV1Api(world.client(USER_AGENT))
        self.stopped = threading.Event()

    def run(self) -> None:
        while not self.stopped.is_set():
            try:
                self.follow()
            except ApiException:
                # The world is gone, or the history of the watch is: the next list shows which.
                self.stopped.wait(0.1)

    def follow(self) -> None:
        sources = self.maps.list_namespaced_config_map(NAMESPACE, label_selector="copy=yes")
        for source in sources.items:
            self.reconcile(source)
        events = watch.Watch().stream(
            self.maps.list_namespaced_config_map,
            NAMESPACE,
            label_selector="copy=yes",
            resource_version=sources.metadata.resource_version,
        )
        for event in events:
            if event["type"] != "DELETED":
                self.reconcile(event["object"])

    def reconcile(self, source) -> None:
        name = f"{source.metadata.name}-copy"
        while True:
            try:
                copy = self.maps.read_namespaced_config_map(name, NAMESPACE)
            except ApiException as error:
                if error.status != 404:
                    raise
                self.maps.create_namespaced_config_map(NAMESPACE, {"metadata": {"name": name}, "data": source.data})
                return
            if copy.data == source.data:
                return
            copy.data = source.data
            try:
                self.maps.replace_namespaced_config_map(name, NAMESPACE, copy)
                return
            except ApiException as error:
                # Another client was faster: take its copy and try again.
                if error.status != 409:
                    raise
