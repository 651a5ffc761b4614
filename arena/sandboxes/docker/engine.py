"""A Docker engine of this machine: the connection, its errors as ours, and what an arena that was killed left in it."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

from arena.errors import SandboxError
from arena.sandboxes import workspace_mount
from arena.sandboxes.running import CREDENTIALS
from arena.system import tempdirs

if TYPE_CHECKING:
    from docker import APIClient

DEFAULT_HOST = "unix:///var/run/docker.sock"
ANSWER_S = 60.0
"""An engine that says nothing for so long is given up."""
OWNER = "arena.owner"
"""Label of a container: the arena that made it."""
SHELF = "shelf"
"""Where a workspace is mounted for a moment, in the folder of a start."""


def host() -> str:
    """Its address, as Docker's own client finds it."""
    return os.environ.get("DOCKER_HOST") or DEFAULT_HOST


@contextmanager
def connected() -> Iterator[APIClient]:
    """A connection to the engine, whose boxes can have this machine's files and users. SandboxError with what to do."""
    if os.geteuid() != 0:
        raise SandboxError(
            "the docker backend is for root: an engine gives a box no user namespace, so a plain user's box would be that user, "
            "on the host as well. Whoever may use an engine can be root through it: start arena with sudo, or use --sandbox bwrap"
        )
    address = host()
    if not address.startswith("unix://"):
        raise SandboxError(
            f"the Docker engine at {address} may be another machine's, without our files: use one on a unix socket"
        )
    try:
        from docker import APIClient
    except ModuleNotFoundError:
        raise SandboxError("the docker backend needs the package `docker`: pip install 'arena[docker]'") from None
    try:
        with socket.socket(socket.AF_UNIX) as tried:
            tried.connect(address.removeprefix("unix://"))
    except OSError as error:
        raise SandboxError(
            f"no Docker engine at {address} ({error.strerror}): start one (scripts/dockerd can, for a while) or set DOCKER_HOST"
        ) from None
    with told(f"the Docker engine at {address} does not answer"):
        engine = APIClient(base_url=address, version="auto", timeout=ANSWER_S)
    with closing(engine):
        yield engine


def sees_our_mounts() -> bool:
    """Whether what this process mounts now is there for the engine too, or for whoever opened its socket in its stead."""
    with socket.socket(socket.AF_UNIX) as tried:
        tried.connect(host().removeprefix("unix://"))
        pid, _, _ = CREDENTIALS.unpack(tried.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size))
    try:
        return Path(f"/proc/{pid}/ns/mnt").readlink() == Path("/proc/self/ns/mnt").readlink()
    except OSError:  # of another pid namespace, or not ours to look at
        return False


def remove(engine: APIClient, name: str) -> None:
    """Take a container away, killed if it should still run."""
    from docker.errors import APIError

    with told(f"container {name[:12]} cannot be removed"):
        try:
            engine.remove_container(name, force=True, v=True)
        except APIError as error:
            if error.status_code not in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT):  # somebody else has, or is about to
                raise


@contextmanager
def told(what: str) -> Iterator[None]:
    """What the engine refuses, or that it does not answer, as a SandboxError that begins so."""
    from docker.errors import APIError, DockerException
    from requests import RequestException

    try:
        yield
    except APIError as error:
        raise SandboxError(f"{what}: {error.explanation or error}") from None
    except (DockerException, RequestException) as error:
        raise SandboxError(f"{what} ({error})") from None


def sweep(engine: APIClient) -> None:
    """Take away what an arena left that was killed: containers that have ended, or never started, and mounts in their folders.

    Its boxes need no sweep: they end when their socket to arena does.
    """
    with told("the engine's containers cannot be listed"):
        containers = engine.containers(all=True, filters={"label": OWNER, "status": ["created", "exited", "dead"]})
    for container in containers:
        if not tempdirs.alive(container["Labels"][OWNER]):
            remove(engine, container["Id"])
    for folder in tempdirs.abandoned():
        workspace_mount.taken_off(folder / SHELF)  # else it keeps the folder, which goes when the next one is made
