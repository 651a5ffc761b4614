"""Stubs of real shared objects: the same symbols, accepted by the real loader and linker, and no call returns."""

import contextlib
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from vendor_library import FATBIN, build, build_program, compiled

from arena.judge.stub_library import ALIGNMENT, STATUS, stub

needs_gcc = pytest.mark.skipif(not shutil.which("gcc") or not shutil.which("nm"), reason="needs gcc and nm")
pytestmark = needs_gcc
MACHINE_OFFSET, AARCH64 = 18, 183


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """(folder of the real library, folder of its stub, a program linked with the real one)."""
    real, stubbed = tmp_path_factory.mktemp("real"), tmp_path_factory.mktemp("stub")
    library = build(real)
    shutil.move(library, real / "libcublas.so.12")
    (stubbed / "libcublas.so.12").write_bytes(stubbed_bytes(real / "libcublas.so.12"))
    return real, stubbed, build_program(real, real / "libcublas.so.12")


def stubbed_bytes(path, library="cuBLAS"):
    made = stub(memoryview(path.read_bytes()), library)
    assert made is not None
    return made


def ran(program, folder, *arguments):
    environment = os.environ | {"LD_LIBRARY_PATH": str(folder)}
    return subprocess.run([program, *arguments], env=environment, capture_output=True, text=True, timeout=20)


def symbols(path):
    """Defined symbols with their versions; where data lies is left out."""
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", "--with-symbol-versions", path], capture_output=True, text=True, check=True
    )
    return sorted(line.split()[-1] for line in listed.stdout.splitlines())


def test_symbols_and_versions_are_the_same(folders):
    real, stubbed, _ = folders
    wanted = symbols(real / "libcublas.so.12")
    assert {"vendorCreate@@LIB_2", "vendorCreate@LIB_1", "vendorData@@LIB_1"} <= set(wanted)
    assert symbols(stubbed / "libcublas.so.12") == wanted


def test_program_loads_without_the_libraries_constructors(folders):
    real, stubbed, program = folders
    control = ran(program, real)
    assert (control.returncode, control.stdout, control.stderr) == (0, "loaded 7 3\n", "constructor\ndestructor\n")
    result = ran(program, stubbed)
    assert (result.returncode, result.stdout, result.stderr) == (0, "loaded 0 0\n", "")


def test_call_ends_the_process_with_one_sentence(folders):
    real, stubbed, program = folders
    assert ran(program, real, "call").stdout.endswith("multiplied 42\ncreated 2\n")
    result = ran(program, stubbed, "call")
    sentence = "arena: this problem excludes cuBLAS; solution.py called vendorMultiply\n"
    assert (result.returncode, result.stdout, result.stderr) == (STATUS, "loaded 0 0\n", sentence)


@pytest.mark.parametrize("name", ["vendorCreate", "vendorMultiply", "vendorIndirect", "vendorWeak"])
def test_every_function_is_found_and_ends_the_process(folders, name):
    library = folders[1] / "libcublas.so.12"
    program = f"import ctypes, sys; getattr(ctypes.CDLL({str(library)!r}, ctypes.RTLD_GLOBAL), {name!r})(); print('returned')"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=20)
    assert (result.returncode, result.stdout) == (STATUS, "")
    assert result.stderr == f"arena: this problem excludes cuBLAS; solution.py called {name}\n"


def test_programs_can_be_linked_with_the_stub(folders, tmp_path):
    result = ran(build_program(tmp_path, folders[1] / "libcublas.so.12"), folders[1], "call")
    assert result.returncode == STATUS


def test_nothing_of_the_real_code_or_data_is_in_the_stub(folders):
    real, stubbed, _ = folders
    assert FATBIN in (real / "libcublas.so.12").read_bytes()
    assert FATBIN not in (stubbed / "libcublas.so.12").read_bytes()


def test_closed_stderr_saves_no_call(folders):
    program = "import ctypes, os, sys; lib = ctypes.CDLL(sys.argv[1]); os.close(2); lib.vendorMultiply(1); print('returned')"
    done = subprocess.run(
        [sys.executable, "-c", program, folders[1] / "libcublas.so.12"], capture_output=True, text=True, timeout=20
    )
    assert (done.returncode, done.stdout) == (STATUS, "")


def test_library_without_versions_or_name(tmp_path):
    compiled(tmp_path, "-shared", "-fPIC", "-Wl,--hash-style=sysv", "-o", "plain.so", source="int f(void) { return 1; }")
    (tmp_path / "stub.so").write_bytes(stubbed_bytes(tmp_path / "plain.so", "cuDNN"))
    program = "import ctypes, sys; ctypes.CDLL(sys.argv[1]).f()"
    result = subprocess.run([sys.executable, "-c", program, tmp_path / "stub.so"], capture_output=True, text=True, timeout=20)
    assert result.stderr == "arena: this problem excludes cuDNN; solution.py called f\n"


def libraries_of_numpy():
    """Real shared objects with many symbols: those that a wheel of NumPy brings."""
    import numpy

    return sorted((Path(numpy.__file__).parents[1] / "numpy.libs").glob("*.so*"))


@pytest.mark.parametrize("path", libraries_of_numpy(), ids=lambda path: path.name.split("-")[0])
def test_symbols_of_large_libraries_are_the_same(path, tmp_path):
    (tmp_path / path.name).write_bytes(stubbed_bytes(path))
    assert symbols(tmp_path / path.name) == symbols(path)
    program = "import ctypes, os, sys; ctypes.CDLL(sys.argv[1], os.RTLD_NOW)"
    subprocess.run([sys.executable, "-c", program, tmp_path / path.name], check=True, timeout=20)


def test_code_for_aarch64(folders):
    """The code of a stub for the other architecture, instruction by instruction as Arm's manual encodes it."""
    other = bytearray((folders[0] / "libcublas.so.12").read_bytes())
    struct.pack_into("<H", other, MACHINE_OFFSET, AARCH64)
    made = stub(memoryview(bytes(other)), "cuBLAS")
    assert made is not None and struct.unpack_from("<H", made, MACHINE_OFFSET) == (AARCH64,)
    end = made.index(struct.pack("<I", 0xD2800040))  # mov x0, #2
    assert struct.unpack_from("<7I", made, end) == (
        *(0xD2800040, 0xD2800808, 0xD4000001),  # mov x0, #2; mov x8, #64; svc #0
        *(0xD2800AC0, 0xD2800BC8, 0xD4000001, 0xD4200000),  # mov x0, #86; mov x8, #94; svc #0; brk #0
    )
    function = end + ALIGNMENT
    point, size, jump, _ = struct.unpack_from("<4I", made, function)
    sentence = made[function + 16 :].split(b"\n", 1)[0] + b"\n"
    assert sentence.startswith(b"arena: this problem excludes cuBLAS; solution.py called vendor")
    assert point == 0x10000081  # adr x1, . + 16
    assert size == 0x52800002 | len(sentence) << 5  # mov w2, #size
    assert jump == 0x14000000 | (-(ALIGNMENT + 8) // 4 & 0x3FFFFFF)  # b, 72 bytes back


@pytest.mark.parametrize(
    "content", [b"", b"!<arch>\n", b"/* GNU ld script */ INPUT(libx.so)", b"\x7fELF\x01\x01\x01" + bytes(80)]
)
def test_files_that_do_not_load_have_no_stub(content):
    assert stub(memoryview(content), "cuBLAS") is None


@given(cut=st.floats(0, 1), at=st.floats(0, 1), byte=st.integers(0, 255))
def test_damaged_files_raise_nothing_unknown(folders, cut, at, byte):
    data = bytearray((folders[0] / "libcublas.so.12").read_bytes())
    data[int(at * (len(data) - 1))] = byte
    with contextlib.suppress(ValueError, IndexError, struct.error):
        stub(memoryview(bytes(data[: int(cut * len(data))])), "cuBLAS")
