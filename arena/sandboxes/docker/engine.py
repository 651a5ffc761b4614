"""A Docker engine of this machine: the connection, its errors as SandboxError, and the containers of a killed arena."""

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

ANSWER_S = 60.0  # give up an engine that does not answer for so long
OWNER = "arena.owner"  # label of a container: the arena that made it
WORKSPACE_MOUNT = "workspace"  # subfolder of a start's folder where a workspace is mounted for a moment


def host() -> str:
    """The engine's address, as Docker's own client finds it."""
    return os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"


@contextmanager
def connected() -> Iterator[APIClient]:
    """A connection to the engine. SandboxError when its sandboxes cannot have this machine's files and users."""
    if os.geteuid() != 0:
        raise SandboxError(
            "the docker backend is for root: an engine gives a sandbox no user namespace, so a plain user's sandbox would "
            "be that user, on the host as well. A user who may use an engine can be root through it: start arena with sudo, "
            "or use --sandbox bwrap"
        )
    url = host()
    if not url.startswith("unix://"):
        raise SandboxError(f"the Docker engine at {url} may be another machine's, without our files: use one on a unix socket")
    try:
        from docker import APIClient
    except ModuleNotFoundError:
        raise SandboxError("the docker backend needs the package `docker`: pip install 'arena[docker]'") from None
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(url.removeprefix("unix://"))
    except OSError as error:
        raise SandboxError(
            f"no Docker engine at {url} ({error.strerror}): start one (scripts/dockerd can, for a while) or set DOCKER_HOST"
        ) from None
    with engine_errors(f"the Docker engine at {url} does not answer"):
        engine = APIClient(base_url=url, version="auto", timeout=ANSWER_S)
    with closing(engine):
        yield engine


def sees_our_mounts() -> bool:
    """Whether the engine (or the process that opened its socket for it) sees what this process mounts now."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(host().removeprefix("unix://"))
        pid, _, _ = CREDENTIALS.unpack(client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size))
    try:
        return Path(f"/proc/{pid}/ns/mnt").readlink() == Path("/proc/self/ns/mnt").readlink()
    except OSError:  # of another pid namespace, or not ours to inspect
        return False


def remove(engine: APIClient, name: str) -> None:
    """Remove a container, killed if it still runs."""
    from docker.errors import APIError

    with engine_errors(f"container {name[:12]} cannot be removed"):
        try:
            engine.remove_container(name, force=True, v=True)
        except APIError as error:
            if error.status_code not in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT):  # another process has, or is about to
                raise


@contextmanager
def engine_errors(what: str) -> Iterator[None]:
    """Raise a refusal of the engine, or its silence, as a SandboxError that begins with `what`."""
    from docker.errors import APIError, DockerException
    from requests import RequestException

    try:
        yield
    except APIError as error:
        raise SandboxError(f"{what}: {error.explanation or error}") from None
    except (DockerException, RequestException) as error:
        raise SandboxError(f"{what} ({error})") from None


def sweep(engine: APIClient) -> None:
    """Remove what a killed arena left: containers that have ended, or never started, and mounts in their folders.

    Its running sandboxes need no sweep: each ends when its socket to arena closes.
    """
    with engine_errors("the engine's containers cannot be listed"):
        containers = engine.containers(all=True, filters={"label": OWNER, "status": ["created", "exited", "dead"]})
    for container in containers:
        if not tempdirs.alive(container["Labels"][OWNER]):
            remove(engine, container["Id"])
    for folder in tempdirs.abandoned():
        workspace_mount.detach(folder / WORKSPACE_MOUNT)  # else the next start could not remove the folder
