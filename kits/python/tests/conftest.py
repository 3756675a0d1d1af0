"""What every test of the example finds in its world."""

import pytest
from kubernetes.client import CoreV1Api


@pytest.fixture(scope="session")
def prepared(dogwatch):
    """Prepared once; each test gets a fork of it."""
    source = {"metadata": {"name": "settings", "labels": {"copy": "yes"}}, "data": {"colour": "red"}}
    CoreV1Api(dogwatch.client()).create_namespaced_config_map("default", source)
    return dogwatch
