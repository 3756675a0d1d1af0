"""An operator under a conflict, a stale view and a moved clock."""

import time
from datetime import timedelta

import pytest
from kubernetes.client import ApiException, CoreV1Api

from copier import NAMESPACE, USER_AGENT, Copier

COPIER = {"userAgents": [USER_AGENT]}
# Long enough for an operator on a busy machine to act on an event.
QUIET = "1s"


@pytest.fixture
def maps(world):
    return CoreV1Api(world.client("test"))


@pytest.fixture
def copier(world, maps):
    operator = Copier(world)
    operator.start()
    # Nothing is written until the operator has read, so a settlement would be answered too early here.
    eventually(lambda: colour(maps, "settings-copy") == "red")
    yield operator
    operator.stopped.set()


def eventually(condition, seconds=30):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the operator did not act in time"
        time.sleep(0.02)


def colour(maps, name):
    try:
        return maps.read_namespaced_config_map(name, NAMESPACE).data["colour"]
    except ApiException as error:
        assert error.status == 404
        return None


def paint(maps, colour):
    maps.patch_namespaced_config_map("settings", NAMESPACE, {"data": {"colour": colour}})


def test_a_conflict_is_tried_again(world, maps, copier):
    conflict = world.fault(
        {"conflictOnce": {}}, match=COPIER | {"verbs": ["update"], "resources": ["configmaps"]}, expect_hits=1
    )
    paint(maps, "green")
    world.settle(quiet=QUIET)
    assert colour(maps, "settings-copy") == "green"
    assert conflict.hits == 1
    refused = world.requests(userAgent=USER_AGENT, code="409")
    assert [(each["verb"], each["name"]) for each in refused] == [("update", "settings-copy")]
    updates = [each for each in world.changes(kind="ConfigMap", name="settings-copy") if each["type"] == "MODIFIED"]
    assert [each["userAgent"] for each in updates] == [USER_AGENT]


def test_a_stale_view_is_caught_up_with(world, maps, copier):
    seen_by_copier = CoreV1Api(world.client(USER_AGENT))
    with world.fault({"stale": {"hold": True}}, match=COPIER) as frozen:
        paint(maps, "green")
        # The watch of the operator is behind on purpose, so only the test's own are waited for.
        world.settle(quiet=QUIET, clients=["test"])
        assert (colour(maps, "settings"), colour(seen_by_copier, "settings")) == ("green", "red")
        assert colour(maps, "settings-copy") == "red"
        assert frozen.hits >= 1
    # What was missed is delivered now, and the end of a fault is no write that a settlement waits for.
    eventually(lambda: colour(maps, "settings-copy") == "green")
    assert colour(seen_by_copier, "settings") == "green"


def test_time_moves_when_the_test_moves_it(world, maps, copier):
    world.clock.stop()
    before = world.clock.now()
    advanced = world.clock.advance("10m")["advanced"]
    assert advanced["complete"]
    assert world.clock.now() - before == timedelta(minutes=10)
    source = {"metadata": {"name": "late", "labels": {"copy": "yes"}}, "data": {"colour": "blue"}}
    maps.create_namespaced_config_map(NAMESPACE, source)
    world.settle(quiet=QUIET)
    made = maps.read_namespaced_config_map("late-copy", NAMESPACE).metadata.creation_timestamp
    assert made == world.clock.now().replace(microsecond=0)


def test_a_rewind_undoes_what_the_operator_did(world, maps, copier):
    prepared = world.checkpoint()
    paint(maps, "green")
    world.settle(quiet=QUIET)
    assert colour(maps, "settings-copy") == "green"
    world.rewind(prepared)
    world.settle(quiet=QUIET)
    assert (colour(maps, "settings"), colour(maps, "settings-copy")) == ("red", "red")
