"""Agent CLIs: what is found, what does not fit, and what npm is asked to install."""

import json

import pytest

from arena.agents import install
from arena.errors import ArenaError, UsageError
from arena.schema import Harness


def harness(**cli):
    cli = {"packages": ["@some/tool@2.1.5", "node@24.1.0"], "program": "tool", "versions": ">=2.1,<2.2"} | cli
    return Harness.model_validate(
        {"schema_version": 1, "name": "tool", "title": "Tool", "command": ["tool"], "models": {"m": {}}, "cli": cli}
    )


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
    assert found.recorded("tool")["sha256"] == "a8076d3d28d21e02012b20eaf7dbf75409a6277134439025f282e368e3305abf"


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
