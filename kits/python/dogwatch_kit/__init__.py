"""Starts a Kubernetes API server for tests and gives each test a world of its own.

- `server`: finds the program, starts and stops it
- `lab`: the powers over a world: faults, checkpoints, the clock, settlements, and what clients did
- `connection`: requests to the server
- `plugin`: the fixtures of pytest
"""

from .connection import ApiError
from .lab import Checkpoint, Clock, Fault, Lab, NotSettled, World
from .server import NotFound, Server, StartError, StopError, find

__all__ = [
    "ApiError", "Checkpoint", "Clock", "Fault", "Lab", "NotFound", "NotSettled", "Server", "StartError", "StopError",
    "World", "find",
]
