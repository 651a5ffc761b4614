"""Agent CLIs: what is found, what does not fit, and what npm is asked to install."""

import functools
import hashlib
import http.server
import io
import json
import subprocess
import tarfile
import threading
import zipfile

import pytest

from arena.agents import install
from arena.errors import ArenaError, UsageError
from arena.schema import Cli, Harness


def harness(**cli):
    cli = {"packages": ["@some/tool@2.1.5", "node@24.1.0"], "program": "tool", "versions": ">=2.1,<2.2"} | cli
    return Harness.model_validate(
        {"schema_version": 1, "name": "tool", "title": "Tool", "command": ["tool"], "models": {"m": {}}, "cli": cli}
    )


CLI = Cli(packages=("@some/tool@2.1.5",), program="tool", versions=">=2.1,<2.2")


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("ARENA_CLI", str(tmp_path))
    return tmp_path


def made(home, version="2.1.7", started=True, node="24.1.0"):
    package = home / "tool" / "node_modules" / "@some" / "tool"
    package.mkdir(parents=True)
    (package / "package.json").write_text(json.dumps({"version": version}))
    if node:
        (home / "tool" / "node_modules" / "node").mkdir()
        (home / "tool" / "node_modules" / "node" / "package.json").write_text(json.dumps({"version": node}))
    (home / "tool" / "node_modules" / ".bin").mkdir()
    if started:
        (home / "tool" / "node_modules" / ".bin" / "tool").write_text("#!/bin/sh\n")


def test_found(home):
    made(home)
    found = install.installed(harness())
    assert found is not None
    assert (found.package, found.version, found.folder) == ("@some/tool", "2.1.7", home / "tool")
    assert found.recorded(CLI)["sha256"] == "a8076d3d28d21e02012b20eaf7dbf75409a6277134439025f282e368e3305abf"


@pytest.mark.parametrize(
    ("version", "started", "words"),
    [(None, True, "is not installed in"), ("2.0.9", True, "arena supports >=2.1,<2.2"), ("2.1.7", False, "has no tool")],
)
def test_clis_that_do_not_fit_say_what_to_type(home, version, started, words):
    if version:
        made(home, version, started)
    with pytest.raises(UsageError, match=words) as refused:
        install.installed(harness())
    assert str(refused.value).endswith("run `arena install tool`")


def test_harnesses_without_a_cli_need_none(home):
    assert install.installed(harness().model_copy(update={"cli": None})) is None


@pytest.mark.parametrize(
    ("version", "wanted", "fits"),
    [("2.1.197", ">=2.1,<2.2", True), ("3.0.0-beta.1", ">=2.1,<4", True), ("2.10.0", "<2.9", False), ("nonsense", ">=0", False)],
)
def test_ranges(version, wanted, fits):
    assert install.fits(version, wanted) is fits


@pytest.mark.parametrize(("node", "words"), [(None, "and .* has none"), ("20.0.0", "has 20.0.0")])
def test_companion_packages_are_checked(home, node, words):
    made(home, node=node)
    with pytest.raises(UsageError, match=f"Tool needs node 24.1.0, (and )?.*{words.removeprefix('and .* ')}"):
        install.installed(harness())


@pytest.mark.parametrize("cli", [{"versions": "^2.1"}, {"packages": ["tool"]}, {"packages": ["tool@1 --global"]}])
def test_malformed_clis_are_refused_on_reading(cli):
    with pytest.raises(ValueError, match="give"):
        harness(**cli)


PROGRAM = b"#!/bin/sh\necho it runs\n"


def download(url, content):
    return {"name": "tool", "version": "2.1.5", "url": url, "sha256": hashlib.sha256(content).hexdigest()}


@pytest.fixture
def address(tmp_path_factory):
    """A web server of one folder: its address, and the folder."""
    folder = tmp_path_factory.mktemp("served")
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}", folder
        server.shutdown()


def archive(names):
    with io.BytesIO() as packed:
        with tarfile.open(fileobj=packed, mode="w:gz") as tar:
            for name in names:
                entry = tarfile.TarInfo(name)
                entry.size = len(PROGRAM)
                tar.addfile(entry, io.BytesIO(PROGRAM))
        return packed.getvalue()


@pytest.mark.parametrize("kind", ["archive", "program"])
def test_a_download_is_installed_by_its_digest(home, address, kind):
    url, folder = address
    content = archive(["tool-2.1.5/tool", "tool-2.1.5/LICENSE"]) if kind == "archive" else PROGRAM
    (folder / "it").write_bytes(content)
    wanted = harness(packages=[download(f"{url}/it", content)])
    assert install.install(wanted) and not install.install(wanted)
    found = install.installed(wanted)
    assert found is not None and wanted.cli is not None
    assert (found.package, found.version) == ("tool", "2.1.5")
    assert subprocess.run([home / "tool" / "bin" / "tool"], capture_output=True, text=True).stdout == "it runs\n"
    assert not (home / "tool" / "bin" / "tool").readlink().is_absolute()  # the sandbox shows the folder elsewhere
    assert found.recorded(wanted.cli)["sha256"] == hashlib.sha256(PROGRAM).hexdigest()
    (folder / "it").write_bytes(content + b"x")
    other = harness(packages=[download(f"{url}/it", b"another")])
    with pytest.raises(UsageError, match="is not installed in"):  # another digest is another program
        install.installed(other)
    with pytest.raises(ArenaError, match=r"its sha256 is .* nothing is kept"):
        install.install(other)


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["a/tool", "b/tool"], "holds 2 files named tool"),
        (["a"], "holds 0 files named tool"),
        (["../tool"], "cannot be unpacked"),
    ],
)
def test_a_download_that_does_not_fit_is_refused(home, address, names, words):
    url, folder = address
    (folder / "it").write_bytes(archive(names))
    with pytest.raises(ArenaError, match=words):
        install.install(harness(packages=[download(f"{url}/it", archive(names))]))
    assert not (home / "tool" / "bin").exists()


def wheel(folder):
    """A Python package with one command, as pip takes it from a folder."""
    info = "tool-2.1.5.dist-info"
    files = {
        "tool_package.py": "def main():\n    print(__file__)\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: tool\nVersion: 2.1.5\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "[console_scripts]\ntool = tool_package:main\n",
    }
    with zipfile.ZipFile(folder / "tool-2.1.5-py3-none-any.whl", "w") as packed:
        for name, text in files.items():
            packed.writestr(name, text)
        packed.writestr(f"{info}/RECORD", "".join(f"{name},,\n" for name in (*files, f"{info}/RECORD")))


def test_a_python_package_gets_a_starter(home, tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.mktemp("wheels")
    wheel(folder)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    wanted = harness(packages=["pip:tool@2.1.5"])
    assert install.install(wanted) and not install.install(wanted)
    found = install.installed(wanted)
    assert found is not None and wanted.cli is not None
    assert (found.package, found.version) == ("tool", "2.1.5")
    text = (home / "tool" / "bin" / "tool").read_text()
    assert text.startswith("#!/usr/bin/env -S python -I\n") and str(home) not in text  # the folder lies elsewhere inside
    assert "from tool_package import main" in text and install.INSIDE in text
    assert len(found.recorded(wanted.cli)["lock_sha256"]) == 64
    with pytest.raises(ArenaError, match="pip could not install Tool"):
        install.install(harness(packages=["pip:tool@2.1.6"], versions=">=2.1.6"))


def test_outdated_names_pinned_installed_and_newest(home, npm):
    made(home)
    (npm / "npm").write_text("#!/bin/sh\necho 3.0.0\n")
    rows = [row[1:] for row in install.outdated(harness())]
    assert rows == [("@some/tool", "npm", "2.1.5", "2.1.7", "3.0.0"), ("node", "npm", "24.1.0", "24.1.0", "3.0.0")]
    (npm / "npm").write_text("#!/bin/sh\nexit 1\n")
    assert {row.newest for row in install.outdated(harness())} == {None}


NPM = """#!/bin/sh
echo "$@" > "$(dirname "$0")/asked"
[ -z "$FAIL" ] || { echo "network is down" >&2; exit 7; }
"""


@pytest.fixture
def npm(tmp_path_factory, monkeypatch):
    """A program named npm, which writes down its arguments."""
    folder = tmp_path_factory.mktemp("bin")
    (folder / "npm").write_text(NPM)
    (folder / "npm").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


def test_install_asks_npm_for_the_tried_versions(home, npm):
    with pytest.raises(UsageError, match="is not installed in"):  # the npm of this test installs nothing
        install.install(harness())
    words = f"install --prefix {home / 'tool'} --no-fund --no-audit --loglevel=error @some/tool@2.1.5 node@24.1.0\n"
    assert (npm / "asked").read_text() == words


def test_install_leaves_the_tried_versions_alone(home, npm):
    made(home, version="2.1.5")
    assert not install.install(harness())
    assert not (npm / "asked").exists()


def test_install_mends_a_cli_that_lost_its_program(home, npm):
    made(home, version="2.1.5", started=False)
    with pytest.raises(UsageError, match="has no tool"):  # the npm of this test installs nothing
        install.install(harness())
    assert (npm / "asked").exists()


def test_install_reports_npms_own_words(home, npm, monkeypatch):
    monkeypatch.setenv("FAIL", "1")
    with pytest.raises(ArenaError, match=r"could not install Tool in .* \(exit code 7\): network is down"):
        install.install(harness())


def test_install_without_npm_says_how_to_get_it(home, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match=r"npm is not on PATH: install Node\.js"):
        install.install(harness())


def test_install_refuses_a_harness_without_a_cli(home):
    with pytest.raises(UsageError, match="harness tool needs no CLI"):
        install.install(harness().model_copy(update={"cli": None}))
