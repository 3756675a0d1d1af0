"""Finding, starting and stopping the program; worlds; other clients than `kubernetes`."""

import subprocess
import sys
import textwrap
import time

import kr8s
import pytest
from kr8s.objects import ConfigMap
from kubernetes.client import AppsV1Api, CoreV1Api

import dogwatch_kit
from dogwatch_kit import ApiError, NotFound, NotSettled, Server, StartError, StopError


def test_without_a_program_the_error_names_the_variable(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("DOGWATCH")
    with pytest.raises(NotFound, match="set DOGWATCH to the path of the program"):
        dogwatch_kit.find()
    monkeypatch.setenv("DOGWATCH", str(tmp_path / "missing"))
    with pytest.raises(NotFound, match="DOGWATCH names .*missing"):
        Server()
    program = tmp_path / "dogwatch"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.delenv("DOGWATCH")
    assert dogwatch_kit.find() == str(program)


def test_a_server_that_ends_early_is_an_error_with_its_message():
    with pytest.raises(StartError, match="coffee"):
        Server(controllers=True, flags=["--controllers", "coffee"])


def test_an_expectation_that_is_not_met_is_an_error_of_the_stop():
    server = Server()
    server.fault({"delay": "1ms"}, match={"verbs": ["delete"]}, expect_hits=1, name="never-hit")
    assert server.unmet() == ["fault never-hit expects 1 hits and has 0"]
    with pytest.raises(StopError, match="never-hit"):
        server.stop()
    assert not server.kubeconfig.exists()


def test_controllers_run_in_a_world_that_asks_for_them(prepared):
    with prepared.fork(controllers=True) as world:
        labels = {"app": "web"}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "web", "image": "web"}]}}
        spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
        deployment = {"metadata": {"name": "web"}, "spec": spec}
        AppsV1Api(world.client()).create_namespaced_deployment("default", deployment)
        pods = CoreV1Api(world.client())
        deadline = time.monotonic() + 60
        phases = []
        while phases != ["Running", "Running"]:
            assert time.monotonic() < deadline, f"the pods do not run: {phases}"
            time.sleep(0.05)
            phases = [pod.status.phase for pod in pods.list_namespaced_pod("default").items]
        kinds = {change["kind"] for change in world.timeline("Deployment", "web", "default")}
        assert {"Deployment", "ReplicaSet", "Pod"} <= kinds


def test_worlds_do_not_see_each_other(prepared, world):
    with world.fork() as other:
        CoreV1Api(other.client()).delete_namespaced_config_map("settings", "default")
        other.fault({"error": {"code": 503}})
        other.clock.stop()
        names = [each.metadata.name for each in CoreV1Api(world.client()).list_namespaced_config_map("default").items]
        assert "settings" in names
        with pytest.raises(ApiError, match="Stopped"):
            world.clock.advance("1m")
        kubeconfig = other.kubeconfig
    assert not kubeconfig.exists()
    with pytest.raises(ApiError) as gone:
        other.fault({"delay": "1ms"})
    assert gone.value.code in (401, 403, 404)


def test_a_fault_with_a_wrong_spec_names_the_field(world):
    with pytest.raises(ApiError, match="spec.effect") as refused:
        world.fault({"nope": {}})
    assert refused.value.code == 422


def test_a_busy_world_is_not_settled(world):
    maps = CoreV1Api(world.client("busy"))
    maps.patch_namespaced_config_map("settings", "default", {"data": {"colour": "green"}})
    with pytest.raises(NotSettled) as busy:
        world.settle(quiet="10s", timeout="100ms")
    assert busy.value.status["settled"] is False


def test_kr8s_uses_the_kubeconfig_of_a_world(world):
    api = kr8s.api(kubeconfig=str(world.kubeconfig))
    source = ConfigMap.get("settings", namespace="default", api=api)
    source.patch({"data": {"colour": "green"}})
    changes = world.changes(kind="ConfigMap", name="settings")
    assert changes[-1]["type"] == "MODIFIED" and changes[-1]["userAgent"].startswith("kr8s")


def test_kopf_runs_in_a_world(world, tmp_path):
    operator = tmp_path / "operator.py"
    operator.write_text(textwrap.dedent("""
        import kopf

        @kopf.on.event("configmaps", labels={"copy": "yes"}, annotations={"seen": kopf.ABSENT})
        def seen(patch, **_):
            patch.metadata.annotations["seen"] = "yes"
    """))
    command = [sys.executable, "-m", "kopf", "run", "--standalone", "--namespace", "default", str(operator)]
    kopf = subprocess.Popen(command, env=world.environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        maps = CoreV1Api(world.client())
        deadline = time.monotonic() + 30
        while not maps.read_namespaced_config_map("settings", "default").metadata.annotations:
            assert kopf.poll() is None, kopf.stderr.read().decode()
            assert time.monotonic() < deadline, "kopf did not act in time"
            time.sleep(0.05)
        written = world.requests(verb="patch", resource="configmaps", name="settings")
        assert written and written[0]["userAgent"].startswith("kopf")
    finally:
        kopf.terminate()
        kopf.wait(10)
