"""The profile of a sandbox, and its rendering for bwrap: nothing is started here."""

from importlib import metadata
from pathlib import Path

import pytest

from arena.errors import SandboxError
from arena.sandboxes import Limits, SandboxSpec
from arena.sandboxes.bwrap.arguments import bwrap_arguments
from arena.sandboxes.host import Host, survey
from arena.sandboxes.profile import environment, internet_sockets, profile
from arena.sandboxes.python_env import PythonEnvironment, closure, commands, current_python, entries, required

PYTHON = PythonEnvironment(
    version="3.12", interpreter="/opt/python/bin/python3.12", prefix=Path("/h/py"), library_path="/opt/python/lib"
)
SYSTEM_PYTHON = PythonEnvironment(version="3.12", interpreter="/usr/bin/python3.12")


def spec(**fields):
    return SandboxSpec(**{"kind": "worker", "command": ("true",), **fields})


def arguments_of(given=None, python=PYTHON, host=None):
    return bwrap_arguments(profile(given or spec(), python, host or Host()))


def at(arguments, *sequence):
    """Where `sequence` stands in the list; fails when it does not."""
    for index in range(len(arguments) - len(sequence) + 1):
        if arguments[index : index + len(sequence)] == sequence:
            return index
    raise AssertionError(f"{sequence} is not in {[word for word in arguments if not isinstance(word, bytes)]}")


def test_every_isolation_layer_is_there():
    for word in (
        *("--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"),
        *("--disable-userns", "--new-session", "--as-pid-1", "--clearenv", "--add-seccomp-fd"),
    ):
        assert arguments_of().count(word) == 1, word
    at(arguments_of(), "--cap-drop", "ALL")
    at(arguments_of(), "--uid", "1000", "--gid", "1000")


def test_the_root_is_read_only_after_all_mounts():
    arguments = arguments_of(spec(workspace=Path("/w"), files={"/a/b": b"1"}))
    sealed = at(arguments, "--remount-ro", "/dev", "--remount-ro", "/")
    mounts = [
        at for at, word in enumerate(arguments) if isinstance(word, str) and ("bind" in word or word in ("--tmpfs", "--dir"))
    ]
    assert max(mounts) < sealed


def test_only_these_host_paths_are_bound():
    host = Host(system=(("/bin", "usr/bin"), ("/lib64", None)), etc=(Path("/etc/ld.so.cache"),))
    bound = [word for word in arguments_of(spec(workspace=Path("/w")), host=host) if isinstance(word, Path)]
    assert bound == [Path("/usr"), Path("/lib64"), Path("/etc/ld.so.cache"), Path("/h/py"), Path("/w")]
    at(arguments_of(host=host), "--symlink", "usr/bin", "/bin")


def test_only_the_workspace_is_writable():
    arguments = arguments_of(spec(workspace=Path("/w")))
    assert arguments[at(arguments, "--bind", Path("/w"), "/workspace")] == "--bind"
    assert arguments.count("--bind") == 1 and "--bind" not in arguments_of()


def test_internet_sockets_are_for_agents_and_gpus():
    assert [internet_sockets(spec(**each)) for each in ({}, {"kind": "agent"}, {"gpu": 0})] == [False, True, True]


def test_a_network_of_its_own_unless_it_is_open():
    assert arguments_of(spec(kind="agent")).count("--unshare-net") == 1
    host = Host(resolver=b"nameserver 192.0.2.1\n")
    arguments = arguments_of(spec(kind="agent", network="open"), host=host)
    assert "--unshare-net" not in arguments
    at(arguments, "--perms", "0444", "--ro-bind-data", host.resolver, "/etc/resolv.conf")
    assert "/etc/resolv.conf" not in arguments_of(host=host)


def test_the_sockets_of_bridges_are_not_shown():
    arguments = arguments_of(spec(kind="agent", bridges={3128: Path("/host/b"), 3127: Path("/host/a")}))
    assert not {Path("/host/a"), Path("/host/b")} & set(arguments)
    assert "/run/arena/bridge.pyc" in arguments and "--unshare-net" in arguments
    assert "/run/arena/bridge.pyc" not in arguments_of()


@pytest.mark.parametrize("port", [0, 443, 65536])
def test_a_port_that_process_1_cannot_use_is_an_error(port):
    with pytest.raises(SandboxError, match="from 1024 to 65535"):
        arguments_of(spec(kind="agent", bridges={port: Path("/host/a")}))


@pytest.mark.parametrize("fields", [{"network": "open"}, {"bridges": {3128: Path("/host/a")}}])
def test_a_submission_has_no_network(fields):
    with pytest.raises(SandboxError, match="without any network"):
        arguments_of(spec(kind="worker", **fields))


def test_sizes_stand_before_their_tmpfs():
    arguments = arguments_of(spec(limits=Limits(tmp_bytes=1, home_bytes=2, shm_bytes=3)))
    at(arguments, "--size", "1", "--perms", "1777", "--tmpfs", "/tmp")
    at(arguments, "--size", "2", "--perms", "0700", "--tmpfs", "/home/agent")
    assert at(arguments, "--size", "3", "--perms", "1777", "--tmpfs", "/dev/shm") > at(arguments, "--dev", "/dev")


def test_environment_is_short_and_adds_the_specs_own():
    assert environment(spec(env={"A": "1", "LANG": "C"}), SYSTEM_PYTHON, Host()) == {
        "PATH": "/opt/venv/bin:/usr/local/bin:/usr/bin:/bin",
        "HOME": "/home/agent",
        "USER": "agent",
        "LANG": "C",
        "TMPDIR": "/tmp",
        "A": "1",
    }


def test_cuda_and_library_folders_appear_only_where_needed():
    host = Host(cuda=True, library_path=("/usr/local/nvidia/lib64",), devices=(Path("/dev/nvidia0"),))
    assert environment(spec(), PYTHON, host)["PATH"].startswith("/opt/venv/bin:/usr/local/cuda/bin:")
    assert environment(spec(), PYTHON, host)["LD_LIBRARY_PATH"] == "/opt/python/lib"
    assert environment(spec(gpu=0), PYTHON, host)["LD_LIBRARY_PATH"] == "/opt/python/lib:/usr/local/nvidia/lib64"


def test_only_the_one_gpu_is_bound():
    devices = tuple(Path("/dev", name) for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "nvidia-modeset"))
    arguments = arguments_of(spec(gpu=1), host=Host(devices=devices))
    nodes = [word for word in arguments if isinstance(word, Path) and word.is_relative_to("/dev")]
    assert nodes == [Path("/dev/nvidia1"), Path("/dev/nvidiactl"), Path("/dev/nvidia-uvm")]
    assert at(arguments, "--dev-bind", Path("/dev/nvidia1"), "/dev/nvidia1") > at(arguments, "--dev", "/dev")
    assert "--dev-bind" not in arguments_of(host=Host(devices=devices))


def test_a_missing_gpu_is_an_error_that_lists_the_present():
    with pytest.raises(SandboxError, match=r"/dev/nvidia3 does not exist.*/dev/nvidia0"):
        arguments_of(spec(gpu=3), host=Host(devices=(Path("/dev/nvidia0"),)))


def test_python_is_a_virtual_environment_over_its_prefix():
    python = PythonEnvironment(
        version="3.12",
        interpreter="/opt/python/bin/python3.12",
        prefix=Path("/h/py"),
        packages=(Path("/v/site/torch"),),
        commands={"torchrun": b"text", "ninja": Path("/v/bin/ninja")},
        hidden=(Path("/h/py/lib/python3.12/site-packages"),),
    )
    arguments = arguments_of(python=python)
    at(arguments, "--ro-bind", Path("/h/py"), "/opt/python")
    hidden = "/opt/python/lib/python3.12/site-packages"
    at(arguments, "--perms", "0555", "--tmpfs", hidden, "--remount-ro", hidden)
    config = b"home = /opt/python/bin\ninclude-system-site-packages = false\nversion = 3.12\n"
    at(arguments, "--ro-bind-data", config, "/opt/venv/pyvenv.cfg")
    at(arguments, "--symlink", "/opt/python/bin/python3.12", "/opt/venv/bin/python")
    at(arguments, "--ro-bind", Path("/v/site/torch"), "/opt/venv/lib/python3.12/site-packages/torch")
    at(arguments, "--perms", "0555", "--ro-bind-data", b"text", "/opt/venv/bin/torchrun")
    at(arguments, "--ro-bind", Path("/v/bin/ninja"), "/opt/venv/bin/ninja")


def test_a_system_python_needs_no_prefix():
    arguments = arguments_of(python=SYSTEM_PYTHON)
    assert "/opt/python" not in arguments
    at(arguments, "--symlink", "/usr/bin/python3.12", "/opt/venv/bin/python")


def test_secrets_in_a_bound_folder_are_covered_right_after_it():
    host = Host(secret_folders=(Path("/h/py/lib/arena"), Path("/elsewhere")), secret_files=(Path("/h/py/key"),))
    arguments = arguments_of(host=host)
    start = at(arguments, "--ro-bind", Path("/h/py"), "/opt/python")
    assert arguments[start + 3 : start + 8] == ("--perms", "0000", "--ro-bind-data", b"", "/opt/python/key")
    at(arguments, "--tmpfs", "/opt/python/lib/arena", "--remount-ro", "/opt/python/lib/arena")
    assert not any("elsewhere" in str(word) for word in arguments)


def test_a_secret_below_another_cover_is_not_mounted_twice():
    python = PythonEnvironment(version="3.12", interpreter="/usr/bin/python3", hidden=(Path("/usr/lib/python3/dist-packages"),))
    host = Host(
        secret_folders=(Path("/usr/lib/python3/dist-packages/arena"), Path("/usr/lib/python3/dist-packages/arena/hidden"))
    )
    assert [word for word in arguments_of(python=python, host=host) if "dist-packages" in str(word)] == [
        "/usr/lib/python3/dist-packages",
        "/usr/lib/python3/dist-packages",
    ]


def test_replaced_files_have_their_content_wherever_shown():
    library, own, covered = Path("/h/py/lib/libx.so"), Path("/site/x.so"), Path("/h/py/lib/site-packages/nvidia/libx.so")
    python = PythonEnvironment(
        version="3.12",
        interpreter="/opt/python/bin/python3.12",
        prefix=Path("/h/py"),
        packages=(Path("/h/py/lib/site-packages/nvidia"), own),
        hidden=(Path("/h/py/lib/site-packages"),),
    )
    given = spec(replaced={library: b"1", own: b"2", covered: b"3", Path("/elsewhere/libx.so"): b"4"})
    arguments = arguments_of(given, python)
    site = "/opt/venv/lib/python3.12/site-packages"
    at(arguments, "--perms", "0444", "--ro-bind-data", b"1", "/opt/python/lib/libx.so", "--perms", "0555", "--tmpfs")
    at(arguments, "--perms", "0444", "--ro-bind-data", b"3", f"{site}/nvidia/libx.so")
    at(arguments, "--perms", "0444", "--ro-bind-data", b"2", f"{site}/x.so")
    assert arguments.count(b"3") == 1 and b"4" not in arguments
    assert arguments.index(b"2") > arguments.index(own)  # which it covers


def test_secret_wins_over_a_replaced_file():
    path = Path("/h/py/key")
    arguments = arguments_of(spec(replaced={path: b"1"}), host=Host(secret_files=(path,)))
    at(arguments, "--perms", "0000", "--ro-bind-data", b"", "/opt/python/key")
    assert b"1" not in arguments


def test_shown_paths_are_those_that_are_bound():
    host = Host(system=(("/bin", "usr/bin"), ("/lib64", None)), etc=(Path("/etc/ld.so.cache"),), devices=(Path("/dev/nvidia0"),))
    made = profile(spec(workspace=Path("/w"), gpu=0, binds={"/opt/x": Path("/x")}), PYTHON, host)
    assert made.shown == tuple(map(Path, ("/usr", "/lib64", "/etc/ld.so.cache", "/h/py", "/w", "/x")))


def test_a_workspace_may_lie_in_a_secret_and_hold_a_covered_one():
    host = Host(secret_folders=(Path("/runs"), Path("/runs/1/work/key")))
    at(
        arguments_of(spec(workspace=Path("/runs/1/work")), host=host),
        "--tmpfs",
        "/workspace/key",
        "--remount-ro",
        "/workspace/key",
    )


@pytest.mark.parametrize("secret", ["/h", "/h/py"])
def test_a_bound_folder_inside_a_secret_is_an_error(secret):
    with pytest.raises(SandboxError, match="/h/py would be shown"):
        arguments_of(host=Host(secret_folders=(Path(secret),)))


@pytest.mark.parametrize("path", ["solution.py", "/workspace/../etc/passwd"])
def test_files_have_absolute_names(path):
    with pytest.raises(SandboxError, match="absolute path"):
        arguments_of(spec(files={path: b""}))


def test_files_are_read_only_and_come_after_the_workspace():
    arguments = arguments_of(spec(workspace=Path("/w"), files={"/workspace/check.py": b"text"}))
    assert at(arguments, "--perms", "0444", "--ro-bind-data", b"text", "/workspace/check.py") > at(
        arguments, "--bind", Path("/w")
    )


def test_pinning_changes_the_filter():
    assert arguments_of(spec(cpus=frozenset({0})))[-1] != arguments_of()[-1]


def test_requirements_of_an_extra_need_that_extra():
    lines = [
        'Foo_Bar[cuda, x]>=1; platform_system == "Linux"',
        "plain",
        'opt; extra == "cuda"',
        "other ; extra == 'gui' and os == 'x'",
    ]
    assert list(required(lines, "")) == [("foo-bar", ""), ("foo-bar", "cuda"), ("foo-bar", "x"), ("plain", "")]
    assert list(required(lines, "cuda")) == [("opt", "")]
    assert list(required(lines, "none")) == []


def test_the_closure_holds_installed_packages_only():
    names = {found.name.lower() for found in closure(("pytest", "no-such-package"))}
    assert {"pytest", "pluggy", "iniconfig"} <= names and "ruff" not in names
    assert closure(("no-such-package",)) == []


def test_entries_are_top_level_names_that_exist():
    found = {
        path.name for distribution in closure(("pytest",)) if distribution.name == "pytest" for path in entries(distribution)
    }
    assert {"pytest", "_pytest", "py.py"} <= found and "__pycache__" not in found and not any("bin" in name for name in found)


def test_programs_of_a_package_are_those_in_its_bin_folder(tmp_path):
    info = tmp_path / "lib" / "ninja.dist-info"
    files = ["../bin/ninja", "ninja/ninja", "../bin/ninja-build", "../sbin/ninja"]
    for path in (info, *(info.parent / file for file in files)):
        path.parent.mkdir(parents=True, exist_ok=True)
    info.mkdir()
    for file in files:
        (info.parent / file).touch()
    (info / "RECORD").write_text("".join(f"{file},sha256=x,1\n" for file in files))
    assert list(commands(metadata.Distribution.at(info))) == [("ninja", tmp_path / "bin" / "ninja")]
    (tmp_path / "bin" / "ninja").unlink()
    assert list(commands(metadata.Distribution.at(info))) == []


def test_an_entry_point_is_a_script_for_the_sandboxs_python(tmp_path):
    (tmp_path / "entry_points.txt").write_text("[console_scripts]\nninja = ninja:run\nother = ninja:other\n")
    ((name, script),) = commands(metadata.Distribution.at(tmp_path))
    assert name == "ninja" and isinstance(script, bytes)
    assert b"from ninja import run" in script and script.startswith(b"#!/opt/venv/bin/python\n")


def test_this_pythons_other_packages_are_not_shown():
    names = {path.name for path in current_python().packages}
    assert not {"arena", "pytest", "pydantic", "rich", "psutil"} & names
    assert not any(name.endswith(".pth") and "arena" in name for name in names)


def test_packages_asked_for_are_shown_with_their_needs():
    """What a baseline needs. No other sandbox shows it."""
    names, usual = ({path.name for path in current_python(packages).packages} for packages in (("pytest",), ()))
    assert {"_pytest", "pluggy", "iniconfig"} <= names - usual
    assert usual <= names and not {"arena", "ruff", "pydantic"} & names


def test_survey_finds_this_machine(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    host = survey((tmp_path / "link", tmp_path / "file", tmp_path / "absent"))
    assert (host.secret_folders, host.secret_files) == ((tmp_path / "folder",), (tmp_path / "file",))
    assert all(path.exists() for path in (*host.etc, *host.devices))
    assert {"/bin", "/lib"} <= {path for path, _ in host.system}
