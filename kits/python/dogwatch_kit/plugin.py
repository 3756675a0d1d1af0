"""The fixtures of pytest."""

import pytest

from .lab import Lab, World
from .server import Server


@pytest.fixture(scope="session")
def dogwatch_options() -> dict:
    """The arguments of `Server`. Define a fixture of this name in conftest.py to change them."""
    return {}


@pytest.fixture(scope="session")
def dogwatch(dogwatch_options: dict):
    """The server of all tests. What every test needs is prepared here once."""
    with Server(**dogwatch_options) as server:
        yield server


@pytest.fixture(scope="session")
def prepared(dogwatch: Server) -> Lab:
    """The world that `world` forks. Define a fixture of this name in conftest.py to prepare objects in it."""
    return dogwatch


@pytest.fixture
def world(prepared: Lab):
    """A world of its own for a test, deleted at its end. The test fails if an expectation of a fault was not met."""
    with prepared.fork() as forked:
        yield forked
        unmet = forked.unmet()
        assert not unmet, "; ".join(unmet)
