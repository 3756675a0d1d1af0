"""Programs as users of the official Python client write them. Each prints what it sees, one line each; the driver
(tests/blackbox) changes objects meanwhile and reads the lines."""

import sys

from kubernetes import client, config, watch


def watch_pods(v1):
    """The program of every tutorial."""
    for event in watch.Watch().stream(v1.list_namespaced_pod, namespace="default"):
        print("%s : %s" % (event["type"], event["object"].metadata.name), flush=True)


def list_then_watch(v1):
    """List the names, then watch from there."""
    pods = v1.list_namespaced_pod("default")
    for pod in pods.items:
        print(pod.metadata.name, flush=True)
    print("watching", flush=True)
    stream = watch.Watch().stream(
        v1.list_namespaced_pod,
        namespace="default",
        resource_version=pods.metadata.resource_version,
        label_selector="app=web",
    )
    for event in stream:
        print("%s : %s" % (event["type"], event["object"].metadata.name), flush=True)


def timed_watch(v1):
    """A watch with a time limit ends by itself."""
    seen = [
        event["object"].metadata.name
        for event in watch.Watch().stream(v1.list_namespace, timeout_seconds=1)
    ]
    print("default" in seen, "kube-system" in seen, flush=True)


def write(v1):
    """An object's life, and the errors a program tells apart."""
    body = client.V1Pod(
        metadata=client.V1ObjectMeta(name="one"),
        spec=client.V1PodSpec(containers=[client.V1Container(name="app", image="app")]),
    )
    pod = v1.create_namespaced_pod("default", body)
    print("created", pod.metadata.name, pod.spec.restart_policy, pod.status.phase)
    patch = [{"op": "add", "path": "/metadata/labels", "value": {"app": "web"}}]
    pod = v1.patch_namespaced_pod("one", "default", patch)
    print("patched", pod.metadata.labels)
    try:
        v1.create_namespaced_pod("default", body)
    except client.ApiException as error:
        print("second create", error.status, error.reason)
    v1.delete_namespaced_pod("one", "default", grace_period_seconds=0)
    try:
        v1.read_namespaced_pod("one", "default")
    except client.ApiException as error:
        print("read after delete", error.status, error.reason)
    print("server", client.VersionApi().get_code().minor)


PROGRAMS = {"watch": watch_pods, "list_then_watch": list_then_watch, "timed": timed_watch, "write": write}

if __name__ == "__main__":
    config.load_kube_config()
    PROGRAMS[sys.argv[1]](client.CoreV1Api())
