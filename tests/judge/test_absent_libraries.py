"""In the real sandbox: no path leads to an excluded library, what links to it loads, and a call to it ends the process."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from vendor_library import FATBIN, build, build_program

from arena import catalog
from arena.authoring.baseline import without_rules
from arena.judge import absent_libraries
from arena.judge.stub_library import STATUS, stub
from arena.sandboxes import SandboxSpec
from arena.schema import VendorLibrary

needs_gcc = pytest.mark.skipif(not shutil.which("gcc"), reason="needs gcc")
ALL = get_args(VendorLibrary)
READ = f"""
import json, os, sys
seen, sizes = [], {{}}
for top in sys.argv[1:]:
    for folder, _, names in os.walk(top, followlinks=True):
        for name in names:
            path = os.path.join(folder, name)
            if name.startswith("lib") or name == "blob":
                with open(path, "rb") as file:
                    data = file.read()
                sizes[path] = len(data)
                if {FATBIN!r} in data:
                    seen.append(path)
print(json.dumps({{"seen": sorted(seen), "sizes": sizes}}))
"""
"""Reads every library below the folders, as a submission could."""


@pytest.fixture
def toolkit(tmp_path):
    """A folder like a CUDA toolkit's, with the places and kinds of names under which a library lies on real machines."""
    lib = tmp_path / "toolkit" / "targets" / "x86_64-linux" / "lib"
    (lib / "stubs").mkdir(parents=True)
    real = build(lib)
    (lib / "versions").unlink()
    (lib / "libcublas.so.12").symlink_to(real.name)
    (lib / "libcublas.so").symlink_to("libcublas.so.12")
    (tmp_path / "toolkit" / "lib64").symlink_to("targets/x86_64-linux/lib")
    for name in ("libcublasLt.so.13", "libcudnn_engines_precompiled.so.9", "libcublas-a1b2c3d4.so.11.5", "stubs/libcublas.so"):
        shutil.copy(real, lib / name)
    os.link(real, lib / "libcublas.so.12.8")
    shutil.copy(real, lib / "blob")  # a name that says nothing, to which one that does leads
    (lib / "libcusparse.so.12").symlink_to("blob")
    (lib / "libcublas_static.a").write_bytes(b"!<arch>\n" + FATBIN)
    (lib / "libcudnn_cnn_static_v9.a").write_bytes(b"!<arch>\n" + FATBIN)
    (lib / "libcublasLt.so").write_bytes(b"/* GNU ld script */" + FATBIN)
    (lib / "libcudnn_empty.so").write_bytes(b"")
    shutil.copy(real, lib / "libcurand.so.10")
    return tmp_path / "toolkit"


def spec_of(toolkit, *command, libraries=("cuBLAS", "cuDNN", "cuSPARSE"), **fields):
    spec = SandboxSpec("worker", command, binds={"/opt/toolkit": toolkit}, **fields)
    return absent_libraries.without(spec, libraries)


def finished(sandbox, spec):
    with sandbox.run(spec) as running:
        out, err = running.stdout.read().decode(), running.stderr.read().decode()
        return running.wait(30), out, err


@needs_gcc
def test_no_path_leads_to_the_real_library(sandbox, toolkit):
    open_to_all = finished(sandbox, spec_of(toolkit, "python", "-c", READ, "/opt/toolkit", libraries=()))
    assert len(json.loads(open_to_all[1])["seen"]) == 2 * 14, open_to_all  # the control: every name, by both ways to the folder
    code, out, err = finished(sandbox, spec_of(toolkit, "python", "-c", READ, "/opt/toolkit"))
    found = json.loads(out)
    assert (code, err) == (0, "")
    assert found["seen"] == [f"/opt/toolkit/{folder}/libcurand.so.10" for folder in ("lib64", "targets/x86_64-linux/lib")]
    assert found["sizes"]["/opt/toolkit/lib64/libcublas_static.a"] == len(absent_libraries.EMPTY_ARCHIVE)
    assert found["sizes"]["/opt/toolkit/lib64/libcublasLt.so"] == 0


def test_links_that_lead_nowhere_are_no_libraries(tmp_path):
    """As an upgrade leaves behind: of files that are gone, and of themselves."""
    (tmp_path / "libcudnn.so").symlink_to("libcudnn.so.9")
    (tmp_path / "libcublas.so").symlink_to("libcublas.so")
    (tmp_path / "libcublasLt.so.13").write_bytes(b"")
    assert absent_libraries.stubs((tmp_path,), ("cuBLAS", "cuDNN")) == {tmp_path / "libcublasLt.so.13": b""}


@needs_gcc
def test_only_the_libraries_named_are_absent(sandbox, toolkit):
    _, out, _ = finished(sandbox, spec_of(toolkit, "python", "-c", READ, "/opt/toolkit/lib64", libraries=("cuDNN",)))
    seen = {Path(path).name for path in json.loads(out)["seen"]}
    assert {"libcublas.so.12", "blob", "libcublas_static.a"} <= seen
    assert not [name for name in seen if name.startswith("libcudnn")]


@needs_gcc
@pytest.mark.parametrize("name", ["libcublas.so", "libcublas.so.12", "libcublas.so.12.8", "libcusparse.so.12", "blob"])
def test_call_through_ctypes_ends_the_process(sandbox, toolkit, name):
    library = {"libcusparse.so.12": "cuSPARSE", "blob": "cuSPARSE"}.get(name, "cuBLAS")
    program = f"import ctypes; lib = ctypes.CDLL('/opt/toolkit/lib64/{name}'); print('loaded', flush=True); lib.vendorCreate()"
    sentence = f"arena: this problem excludes {library}; solution.py called vendorCreate\n"
    assert finished(sandbox, spec_of(toolkit, "python", "-c", program)) == (STATUS, "loaded\n", sentence)


@needs_gcc
def test_linked_program_loads_and_ends_at_its_call(sandbox, toolkit):
    build_program(toolkit, toolkit / "lib64" / "libcublas.so.12.8.4")
    env = {"LD_LIBRARY_PATH": "/opt/toolkit/lib64"}
    assert finished(sandbox, spec_of(toolkit, "/opt/toolkit/program", env=env)) == (0, "loaded 0 0\n", "")
    code, out, err = finished(sandbox, spec_of(toolkit, "/opt/toolkit/program", "call", env=env))
    assert (code, out) == (STATUS, "loaded 0 0\n")
    assert err == "arena: this problem excludes cuBLAS; solution.py called vendorMultiply\n"
    control = finished(sandbox, spec_of(toolkit, "/opt/toolkit/program", "call", env=env, libraries=()))
    assert control == (0, "loaded 7 3\nmultiplied 42\ncreated 2\n", "constructor\ndestructor\n")


@needs_gcc
@pytest.mark.parametrize(
    "attempt",
    [
        "os.remove('/opt/toolkit/lib64/libcublas.so.12.8.4')",
        "os.rename('/opt/toolkit/lib64/libcublas.so.12.8.4', '/opt/toolkit/lib64/away')",
        "open('/opt/toolkit/lib64/libcublas.so.12.8.4', 'ab')",
        "libc.umount2(b'/opt/toolkit/targets/x86_64-linux/lib/libcublas.so.12.8.4', 2) and 1 / 0",
        "libc.unshare(0x10020000) and 1 / 0",
    ],
)
def test_stub_cannot_be_taken_away(sandbox, toolkit, attempt):
    program = f"""
import ctypes, os
libc = ctypes.CDLL(None)
try:
    {attempt}
except (OSError, ZeroDivisionError):
    print("refused")
"""
    assert finished(sandbox, spec_of(toolkit, "python", "-c", program))[:2] == (0, "refused\n")


def numpy_library(prefix):
    import numpy

    found = sorted((Path(numpy.__file__).resolve().parents[1] / "numpy.libs").glob(f"{prefix}*"))
    if not found:
        pytest.skip(f"this NumPy brings no {prefix}")
    return found[0]


def with_stub(path):
    made = stub(memoryview(path.read_bytes()), "cuBLAS")
    assert made is not None
    return made


@pytest.mark.slow
def test_python_loads_with_a_stub_among_its_dependencies(sandbox):
    """NumPy's Fortran library links to libquadmath, by versions: torch and NumPy load while that is a stub."""
    path = numpy_library("libquadmath")
    program = "import numpy, torch; print(torch.from_numpy(numpy.ones((2, 2))).sum().item())"
    spec = SandboxSpec("worker", ("python", "-c", program), replaced={path: with_stub(path)})
    assert finished(sandbox, spec) == (0, "4.0\n", "")


def test_packages_library_is_replaced_where_it_is_bound(sandbox):
    path = numpy_library("libscipy_openblas")
    program = "import numpy; print('imported', flush=True); numpy.ones((9, 9)) @ numpy.ones((9, 9))"
    spec = SandboxSpec("worker", ("python", "-c", program))
    assert finished(sandbox, spec) == (0, "imported\n", "")
    code, _, err = finished(sandbox, replace(spec, replaced={path: with_stub(path)}))
    assert code == STATUS
    assert err.startswith("arena: this problem excludes cuBLAS; solution.py called scipy_cblas_")


def test_nothing_changes_where_no_library_is_excluded():
    spec = SandboxSpec("worker", ("true",))
    assert absent_libraries.without(spec, ()) is spec


def test_every_library_has_names():
    assert set(absent_libraries.PREFIXES) == set(ALL)


def test_baselines_keep_the_libraries():
    problem = catalog.problem("fp8_gemm").model_copy(update={"absent_libraries": ALL})
    assert without_rules(problem).absent_libraries == ()
