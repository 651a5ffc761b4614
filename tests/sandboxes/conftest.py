"""The sandbox backends, each on every test that asks for `backend`, and a Docker engine of the tests' own."""

import os
import subprocess
import tempfile
from pathlib import Path

import pytest
from sandbox_programs import ROOT, Backend, alive, token

from arena.sandboxes import bwrap, docker
from arena.sandboxes.backends import backend as proven

DOCKERD = ROOT / "scripts" / "dockerd"


@pytest.fixture(scope="session")
def docker_engine():
    """The address of an engine that these tests start; nothing is left of it afterwards."""
    pytest.importorskip("docker", reason="the package `docker` is not installed")
    folder = Path(tempfile.gettempdir(), f"arena-dockerd-{token()}")
    try:
        done = subprocess.run([DOCKERD, folder], capture_output=True, text=True, timeout=120)
    except subprocess.TimeoutExpired:
        subprocess.run([DOCKERD, "--stop", folder], timeout=60)
        pytest.skip("scripts/dockerd did not get Debian's packages within two minutes")
    if done.returncode:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    try:
        yield done.stdout.strip().removeprefix("export DOCKER_HOST=")
    finally:
        subprocess.run([DOCKERD, "--stop", folder], check=True, timeout=60)
        assert not folder.exists() and alive(str(folder)) == [] and str(folder) not in Path("/proc/mounts").read_text()


@pytest.fixture
def docker_host(docker_engine, monkeypatch):
    """The engine, named in the environment."""
    monkeypatch.setenv("DOCKER_HOST", docker_engine)
    return docker_engine


@pytest.fixture(scope="session")
def proven_docker(docker_engine):
    """The docker backend. A failure when its engine cannot isolate a sandbox: the engine could be started."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("DOCKER_HOST", docker_engine)
        proven("docker")
    return Backend("docker", docker)


@pytest.fixture
def docker_backend(proven_docker, docker_host):
    return proven_docker


@pytest.fixture(scope="session")
def bwrap_backend():
    if reason := bwrap.missing():
        pytest.skip(reason)
    return Backend("bwrap", bwrap)


@pytest.fixture(params=["bwrap", "docker"])
def backend(request):
    """Each backend in turn; one that this machine lacks is skipped with its reason."""
    return request.getfixturevalue(f"{request.param}_backend")


@pytest.fixture
def as_a_plain_user():
    """Runs a program with a folder that is that user's, with the system's own Python.

    The Python that runs these tests may lie in a home that a plain user cannot enter.
    """
    system = "/usr/bin/python3"
    if os.geteuid() != 0:
        pytest.skip("the other tests run as a plain user already")
    plain = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", system, "-c"]
    try:
        probe = "import sys, arena.sandboxes.bwrap; assert sys.version_info >= (3, 11)"
        able = subprocess.run([*plain, probe], cwd=ROOT, capture_output=True).returncode == 0
    except OSError:
        able = False
    if not able:
        pytest.skip(f"needs setpriv and {system} of 3.11 or later in a place that every user may enter")
    root = Path("/tmp", f"arena-plain-{token()}")
    home, work = root / "home", root / "work"
    for folder in (root, home, work):
        folder.mkdir()
        os.chown(folder, 65534, 65534)

    def run(program):
        environment = os.environ | {"HOME": str(home)}
        return subprocess.run([*plain, program, str(work)], cwd=ROOT, env=environment, capture_output=True, text=True)

    yield run
    subprocess.run(["rm", "-rf", str(root)])
