"""Programs as users of the official Python client write them. Each prints what it sees, one line each; the driver
(tests/blackbox) changes objects meanwhile and reads the lines."""

import json
import sys

from kubernetes import client, config, watch
from kubernetes.stream import portforward, stream


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


def patch(v1):
    """Every type of patch: the client takes a list for a JSON patch and a dict for a strategic one, unless told."""
    apps = client.AppsV1Api()
    labels = {"app": "web"}
    containers = [client.V1Container(name=name, image=name) for name in ("app", "side")]
    template = client.V1PodTemplateSpec(
        metadata=client.V1ObjectMeta(labels=labels), spec=client.V1PodSpec(containers=containers)
    )
    spec = client.V1DeploymentSpec(selector=client.V1LabelSelector(match_labels=labels), template=template)
    body = client.V1Deployment(metadata=client.V1ObjectMeta(name="web"), spec=spec)
    apps.create_namespaced_deployment("default", body)

    newer = {"spec": {"template": {"spec": {"containers": [{"name": "side", "image": "newer"}]}}}}
    print("strategic", images(apps.patch_namespaced_deployment("web", "default", newer)))
    merge = "application/merge-patch+json"
    print("merge", images(apps.patch_namespaced_deployment("web", "default", newer, _content_type=merge)))
    operations = [{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "newest"}]
    print("json", images(apps.patch_namespaced_deployment("web", "default", operations)))
    scale = apps.patch_namespaced_deployment_scale("web", "default", {"spec": {"replicas": 4}})
    print("scale", scale.spec.replicas, apps.read_namespaced_deployment("web", "default").spec.replicas)
    status = {"status": {"replicas": 4}}
    deployment = apps.patch_namespaced_deployment_status("web", "default", status)
    print("status", deployment.status.replicas)
    test = [{"op": "test", "path": "/spec/replicas", "value": 1}]
    try:
        apps.patch_namespaced_deployment("web", "default", test)
    except client.ApiException as error:
        print("failed test", error.status)


def images(deployment):
    return ["%s=%s" % (container.name, container.image) for container in deployment.spec.template.spec.containers]


def apply(v1):
    """Server-side apply by two who want different things."""

    def settings(manager, data, **options):
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": data}
        applied = v1.patch_namespaced_config_map(
            "settings",
            "default",
            body,
            field_manager=manager,
            _content_type="application/apply-patch+yaml",
            **options,
        )
        managers = sorted(entry.manager for entry in applied.metadata.managed_fields)
        print(manager, applied.data, managers)

    settings("one", {"colour": "red", "size": "big"})
    settings("two", {"shape": "round"})
    try:
        settings("two", {"colour": "green"})
    except client.ApiException as error:
        print("conflict", error.status, [cause["field"] for cause in json.loads(error.body)["details"]["causes"]])
    settings("two", {"colour": "green"}, force=True)
    settings("one", {})


def custom(v1):
    """A custom resource by the dynamic client: found in discovery, written, selected, watched."""
    from kubernetes import dynamic

    found = dynamic.DynamicClient(v1.api_client)
    definitions = found.resources.get(api_version="apiextensions.k8s.io/v1", kind="CustomResourceDefinition")
    text = {"type": "string"}
    schema = {
        "type": "object",
        "properties": {"spec": {"type": "object", "required": ["size"], "properties": {"size": {"type": "integer"}, "color": text}}},
    }
    definitions.create(
        body={
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "boxes.py.example.com"},
            "spec": {
                "group": "py.example.com",
                "scope": "Namespaced",
                "names": {"plural": "boxes", "kind": "Box"},
                "versions": [
                    {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}},
                ],
            },
        }
    )
    for event in definitions.watch(name="boxes.py.example.com", timeout=60):
        conditions = (event["object"].status or {}).get("conditions") or []
        if any(c["type"] == "Established" and c["status"] == "True" for c in conditions):
            break
    print("established")
    found.resources.invalidate_cache()
    boxes = found.resources.get(api_version="py.example.com/v1", kind="Box")
    box = boxes.create(body={"kind": "Box", "apiVersion": "py.example.com/v1", "metadata": {"name": "one"}, "spec": {"size": 1}}, namespace="default")
    print("created", box.metadata.name, box.spec.size, box.metadata.generation)
    try:
        boxes.create(body={"kind": "Box", "apiVersion": "py.example.com/v1", "metadata": {"name": "two"}, "spec": {}}, namespace="default")
    except dynamic.exceptions.UnprocessibleEntityError as error:
        print("refused", json.loads(error.body)["details"]["causes"][0]["field"])
    boxes.patch(body={"spec": {"color": "red"}}, name="one", namespace="default", content_type="application/merge-patch+json")
    print("listed", [(item.metadata.name, item.spec.color) for item in boxes.get(namespace="default").items])
    boxes.delete(name="one", namespace="default")
    print("left", len(boxes.get(namespace="default").items))


def streams(v1):
    """Logs, a command with input and a forwarded port, over WebSocket."""
    print("log", v1.read_namespaced_pod_log("web", "default", tail_lines=1).strip())
    for line in watch.Watch().stream(v1.read_namespaced_pod_log, name="web", namespace="default"):
        print("followed", line)
        break
    command = ["sh", "-c", "echo out; echo err >&2; exit 3"]
    running = stream(
        v1.connect_get_namespaced_pod_exec, "web", "default", command=command,
        stdin=False, stdout=True, stderr=True, tty=False, _preload_content=False,
    )
    running.run_forever(timeout=60)
    print("exec", running.read_stdout().strip(), running.read_stderr().strip(), running.returncode)
    shell = stream(
        v1.connect_get_namespaced_pod_exec, "web", "default", command=["sh"],
        stdin=True, stdout=True, stderr=True, tty=False, _preload_content=False,
    )
    shell.write_stdin("echo typed\n")
    print("shell", shell.readline_stdout(timeout=60))
    shell.write_stdin("exit 0\n")
    shell.run_forever(timeout=60)
    print("shell ended", shell.returncode)
    forwarded = portforward(v1.connect_get_namespaced_pod_portforward, "web", "default", ports="8080")
    socket = forwarded.socket(8080)
    socket.setblocking(True)
    socket.sendall(b"GET / HTTP/1.0\r\n\r\n")
    answer = b""
    while not answer.endswith(b"made"):
        piece = socket.recv(1024)
        if not piece:
            break
        answer += piece
    socket.close()
    print("forwarded", answer.split(b"\r\n")[0].decode(), answer[-4:].decode(), forwarded.error(8080))
    try:
        stream(v1.connect_get_namespaced_pod_exec, "web", "default", container="none", command=["true"], stdout=True)
    except client.ApiException as error:
        print("refused", error.status)


PROGRAMS = {
    "watch": watch_pods,
    "list_then_watch": list_then_watch,
    "timed": timed_watch,
    "write": write,
    "patch": patch,
    "apply": apply,
    "custom": custom,
    "streams": streams,
}

if __name__ == "__main__":
    config.load_kube_config()
    PROGRAMS[sys.argv[1]](client.CoreV1Api())
