"""`arena doctor`: its report on this machine, on machines that are not here, and on the canaries that it scores."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command import Arena, copy, needs_sandbox

from arena import catalog, paths
from arena.doctor.found import Found, Nvml, NvmlGpu, Torch, TorchGpu, inspect_machine, run_probe
from arena.doctor.gpu import checks, gpus

no_gpu = pytest.mark.skipif(inspect_machine().driver is not None, reason="this machine has an NVIDIA driver")

H200 = Found(
    driver="580.159.04",
    models=("NVIDIA H200",),
    nvml=Nvml(
        driver="580.159.04",
        cuda="13.0",
        gpus=(NvmlGpu(name="NVIDIA H200", uuid="GPU-1", memory_bytes=150_754_820_096, persistence=True),),
    ),
    torch=Torch(cuda="13.0", gpus=(TorchGpu(name="NVIDIA H200", uuid="GPU-1", memory_bytes=150_110_011_392),)),
    packages={"torch": "2.11.0", "triton": "3.6.0", "ninja": "1.13.0", "cuda-bindings": "13.3.0", "nvidia-ml-py": "13.615.71"},
    nvcc="/usr/local/cuda/bin/nvcc",
    nvcc_cuda="13.0",
    cxx="/usr/bin/c++",
    headers="/usr/include/python3.12",
    ncu="/usr/local/cuda/bin/ncu",
)
TWO = replace(
    H200,
    nvml=H200.nvml.model_copy(update={"gpus": (*H200.nvml.gpus, NvmlGpu(name="NVIDIA B200", uuid="GPU-2"))}),
    torch=H200.torch.model_copy(
        update={"gpus": (TorchGpu(name="NVIDIA B200", uuid="GPU-2", memory_bytes=1 << 37), *H200.torch.gpus)}
    ),
)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Arena:
    """For tests that change nothing."""
    return copy(tmp_path_factory.mktemp("shared"))


@pytest.fixture
def arena(tmp_path: Path) -> Arena:
    return copy(tmp_path)


def states(found: Found) -> dict[str, str]:
    return {check.name: check.state for check in checks(found)}


def without(*packages: str) -> dict[str, str]:
    return {name: version for name, version in H200.packages.items() if name not in packages}


# ---------------------------------------------------------------- what is here


@needs_sandbox
def test_doctor_lists_every_part(shared: Arena) -> None:
    pytest.importorskip("torch")
    names = {check["name"] for check in shared.json("doctor")}
    assert {"machine", "sandbox", "catalogue", "torch", "compiler", "home"} < names
    assert not [name for name in names if name.startswith("canary")]
    done = shared("doctor")
    assert (done.code, done.out) == (0, "")
    assert "ok      sandbox" in done.err
    assert done.err.splitlines()[-1].startswith("`arena doctor --score` also scores canary kernels")


@no_gpu
def test_no_gpu_is_one_note(shared: Arena) -> None:
    lines = [
        check
        for check in shared.json("doctor")
        if check["name"] not in ("machine", "sandbox", "torch", "compiler", "docker", "agents")
    ]
    assert [(check["name"], check["state"]) for check in lines] == [
        ("sandbox start", "ok"),
        ("catalogue", "ok"),
        ("gpu", "note"),
        ("settings", "ok"),
        ("home", "ok"),
    ]


def test_home_that_cannot_be_written_is_missing(shared: Arena) -> None:
    done = shared("doctor", env={"ARENA_HOME": "/proc/here"})
    assert done.code == 2
    assert re.search(r"^missing home +/proc/here: cannot be written", done.err, re.MULTILINE)


# ---------------------------------------------------------------- machines that are not here

UBUNTU = """
mount -t tmpfs none /proc/sys/kernel && echo 1 > /proc/sys/kernel/apparmor_restrict_unprivileged_userns && exec "$@"
"""
REFUSED = r"""
#include <stdio.h>
#include <string.h>
int main(int count, char **words) {
    if (count > 1 && strcmp(words[1], "--version") == 0) return puts("bubblewrap 0.9.0") < 0;
    fputs("bwrap: setting up uid map: Permission denied\n", stderr);
    return 1;
}
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for a /proc/sys/kernel of its own")
@pytest.mark.skipif(not shutil.which("cc"), reason="needs cc")
def test_apparmor_host_is_named_with_its_remedy(shared: Arena) -> None:
    """Ubuntu 24.04: bwrap may make a user namespace and has no rights in it; the setting lies in /proc/sys/kernel."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # another user than root starts it
        refusing = Path(folder, "bwrap")
        subprocess.run(["cc", "-x", "c", "-o", refusing, "-"], input=REFUSED, text=True, check=True)  # no script: arena opens it
        done = subprocess.run(
            ["unshare", "-m", "sh", "-c", UBUNTU, "sh", sys.executable, "-m", "arena", "doctor", "--json"],
            env=shared.environment(PATH=f"{folder}:{os.environ['PATH']}"),
            cwd=shared.tree.parent,
            capture_output=True,
        )
    (sandbox,) = (check for check in json.loads(done.stdout) if check["name"] == "sandbox")
    assert (done.returncode, sandbox["state"]) == (2, "missing")
    for words in (
        "bwrap: setting up uid map: Permission denied; AppArmor forbids user namespaces here",
        f"profile arena-bwrap {refusing.resolve()} flags=(unconfined)",
        "sudo apparmor_parser -r /etc/apparmor.d/arena-bwrap",
        "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
    ):
        assert words in sandbox["detail"]


def test_complete_machine_is_ok_throughout() -> None:
    reported = {check.name: check for check in checks(H200)}
    assert {check.state for check in reported.values()} == {"ok"}
    assert reported["driver"].detail == "580.159.04, CUDA 13.0"
    assert reported["gpu 0"].detail == "NVIDIA H200, 140 GiB, hardware h200"
    assert reported["torch for CUDA"].detail == "2.11.0 for CUDA 13.0, sees 1 GPU"


@pytest.mark.parametrize(
    ("changed", "name", "words"),
    [
        ({"packages": without("torch"), "torch": Torch(error="No module named 'torch'")}, "torch for CUDA", "pip install torch"),
        ({"torch": Torch()}, "torch for CUDA", "2.11.0 is built without CUDA: install"),
        ({"torch": Torch(error="it ended with code -11")}, "torch for CUDA", "cannot be queried: it ended with code -11"),
        (
            {
                "torch": Torch(cuda="13.0", error="driver too old"),
                "nvml": H200.nvml.model_copy(update={"cuda": "12.8", "driver": "570.1.2"}),
            },
            "torch for CUDA",
            "sees no GPU: driver too old; the driver runs CUDA 12.8 at most: update it, or install torch for CUDA 12.8",
        ),
        (
            {"torch": Torch(cuda="13.0", gpus=(H200.torch.gpus[0].model_copy(update={"error": "no kernel image"}),))},
            "gpu 0",
            "torch cannot use it: no kernel image",
        ),
        ({"packages": without("triton")}, "triton", "pip install triton"),
        ({"packages": without("ninja")}, "ninja", "pip install -e '.[gpu]'"),
        ({"packages": without("cuda-bindings")}, "cuda-bindings", "pip install -e '.[gpu]'"),
        (
            {"packages": without("nvidia-ml-py"), "nvml": Nvml(error="No module named 'pynvml'")},
            "nvidia-ml-py",
            "pip install -e '.[gpu]'",
        ),
        (
            {"nvml": Nvml(error="Driver/library version mismatch")},
            "nvidia-ml-py",
            "cannot query the driver: Driver/library version",
        ),
        ({"nvcc": None}, "nvcc", "install the CUDA toolkit 13.0 at /usr/local/cuda"),
        ({"nvcc": None, "nvcc_elsewhere": "/opt/cuda/bin/nvcc"}, "nvcc", "/opt/cuda/bin/nvcc is where no sandbox sees it"),
        (
            {"nvcc_cuda": "12.9"},
            "nvcc",
            "is of CUDA 12.9 and torch of CUDA 13.0, which load_inline refuses: install the CUDA toolkit 13.0",
        ),
        ({"nvcc_cuda": ""}, "nvcc", "does not report its version"),
        ({"cxx": None}, "c++", "install g++"),
        ({"headers": None}, "c++", "install python3-dev"),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else None,
)
def test_what_a_gpu_lacks_is_missing_with_a_remedy(changed: dict[str, Any], name: str, words: str) -> None:
    reported = {check.name: check for check in checks(replace(H200, **changed))}
    assert [check.name for check in reported.values() if check.state != "ok"] == [name]
    assert reported[name].state == "missing"
    assert words in reported[name].detail


def test_nvcc_of_another_minor_version_is_ok() -> None:
    assert states(replace(H200, nvcc_cuda="13.2"))["nvcc"] == "ok"


def test_ninja_of_the_system_is_ok() -> None:
    assert states(replace(H200, packages=without("ninja"), ninja="/usr/bin/ninja"))["ninja"] == "ok"


@pytest.mark.parametrize(
    ("changed", "words"),
    [({"pids": (17, 23)}, "in use by other processes (pid 17, 23)"), ({"persistence": False}, "nvidia-smi -pm 1")],
)
def test_busy_gpu_is_a_note(changed: dict[str, Any], words: str) -> None:
    [seen] = H200.nvml.gpus
    found = replace(H200, nvml=H200.nvml.model_copy(update={"gpus": (seen.model_copy(update=changed),)}))
    [noted] = [check for check in checks(found) if check.state != "ok"]
    assert (noted.name, noted.state) == ("gpu 0", "note")
    assert words in noted.detail


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"ncu": None}, "no ncu (Nsight Compute) is below /usr, where a sandbox sees it"),
        ({"counters_closed": True}, "NVreg_RestrictProfilingToAdminUsers=0"),
    ],
)
def test_absent_counters_are_a_note(changed: dict[str, Any], words: str) -> None:
    [noted] = [check for check in checks(replace(H200, **changed)) if check.state != "ok"]
    assert (noted.name, noted.state) == ("counters", "note")
    assert words in noted.detail and "unproven" in noted.detail


def test_unlisted_gpu_makes_nothing_missing() -> None:
    laptop = Found(driver="580.1", torch=Torch(cuda="13.0", gpus=(TorchGpu(name="Toy 1", uuid="GPU-3", memory_bytes=1 << 33),)))
    reported = {check.name: check for check in checks(laptop)}
    assert "missing" not in {check.state for check in reported.values()}
    assert reported["gpu 0"].state == "note"
    assert "device_names: [Toy 1]" in reported["gpu 0"].detail


def test_gpus_are_numbered_by_cuda_and_matched_by_uuid() -> None:
    busy = TWO.nvml.model_copy(update={"gpus": (TWO.nvml.gpus[0].model_copy(update={"pids": (5,)}), TWO.nvml.gpus[1])})
    first, second = gpus(replace(TWO, nvml=busy))
    assert (first.name, first.usable, first.warnings) == ("NVIDIA B200", True, ())
    assert second.hardware is not None and (second.hardware.name, len(second.warnings)) == ("h200", 1)


@pytest.mark.parametrize("nvml", [H200.nvml, Nvml(error="No module named 'pynvml'")])
def test_gpu_that_torch_does_not_see_is_listed(nvml: Nvml) -> None:
    [gpu] = gpus(replace(H200, nvml=nvml, torch=Torch(cuda="13.0", error="no driver")))
    assert gpu.hardware is not None and (gpu.hardware.name, gpu.usable) == ("h200", False)


# ---------------------------------------------------------------- the GPU probe


@pytest.mark.slow
def test_probe_reports_this_machine() -> None:
    pytest.importorskip("torch")
    nvml, torch = run_probe()
    assert "GPU probe" not in nvml.error + torch.error
    assert bool(torch.gpus) == bool(inspect_machine().driver and torch.cuda)


SAYS = """print('{"nvml": {"driver": "1.2", "gpus": []}}', flush=True)\n"""


@pytest.mark.parametrize(
    ("then", "limit_s", "words"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", 30, "ended with code -11: nothing on stderr"),
        ("raise SystemExit('libcuda is broken')", 30, "ended with code 1: libcuda is broken"),
        ("import time; time.sleep(60)", 1, "took longer than 1 s"),
        ("print('{\"torch\": {')", 30, "ended with code 0"),
    ],
)
def test_driver_that_kills_or_hangs_the_probe_is_an_error(then: str, limit_s: float, words: str, tmp_path: Path) -> None:
    (tmp_path / "probe.py").write_text(SAYS + then)
    nvml, torch = run_probe(tmp_path / "probe.py", limit_s)
    assert nvml == Nvml(driver="1.2")
    assert torch.error.startswith("the GPU probe") and words in torch.error


# ---------------------------------------------------------------- canaries


def test_canary_is_not_listed(shared: Arena) -> None:
    assert "canary" not in catalog.problems()
    assert "unknown problem 'canary'" in shared.refused("score", "x.py", "-p", "canary")


@pytest.mark.slow
@needs_sandbox
def test_canary_is_hidden_in_sandboxes(shared: Arena) -> None:
    assert any(paths.canary().is_relative_to(secret) for secret in paths.secrets())
    seen = shared(
        "sandbox", "--", "sh", "-c", "find / -path '*arena/doctor/canary*' -o -name wrong_zeros.py 2>/dev/null; echo looked"
    )
    assert seen.out == "looked\n"


def test_canaries_name_their_verdict_on_line_1() -> None:
    pytest.importorskip("torch")
    from arena.authoring.check import expected
    from arena.doctor.canaries import SCORED

    files = {path.stem: path for path in (paths.canary() / "solutions").glob("*.py")}
    assert files.keys() == {name for names in SCORED.values() for name in names}
    assert {name: expected(path) for name, path in files.items()} == {
        name: "incorrect" if name.startswith("wrong_") else "passed" for name in files
    }


def test_canary_tolerance_rejects_wrong_answers() -> None:
    torch = pytest.importorskip("torch")
    from arena.judge import problem_code

    problem = catalog.problem("canary", paths.canary().parent)
    loaded, check = problem_code.load(problem, "cpu", paths.canary()), problem_code.kit("check")
    for shape in (*problem.shapes["cpu"], *loaded.extra_shapes):
        for input_class in ("public", *loaded.input_classes):
            (x,) = loaded.make_inputs(shape, 2**40 + 3, input_class, "cpu")
            (ref,) = loaded.outputs((x,))
            assert x.isfinite().all() and (2 * x).isfinite().all()
            assert set(check.errors(x * 2, ref).values()) == {0.0}
            for wrong in (torch.zeros_like(x), x, -2 * x):
                assert check.errors(wrong, ref)["rel_fro"] > problem.tolerance["rel_fro"]


@needs_sandbox
@no_gpu
@pytest.mark.slow
def test_canaries_pass_on_a_cpu(shared: Arena) -> None:
    pytest.importorskip("torch")
    reported = {check["name"]: check for check in shared.json("doctor", "--score") if check["name"].startswith("canary")}
    assert {name: check["state"] for name, check in reported.items()} == {"canary torch": "ok", "canary wrong_zeros": "ok"}
    assert re.fullmatch(r"passed at 0\.\d{3} of the ceiling on cpu, \d+\.\d s", reported["canary torch"]["detail"])
    assert re.fullmatch(r"incorrect on cpu, \d+\.\d s, as it must be", reported["canary wrong_zeros"]["detail"])


@pytest.mark.slow
@needs_sandbox
@no_gpu
def test_failing_canary_shows_the_judges_message(arena: Arena) -> None:
    pytest.importorskip("torch")
    arena.edit("arena/doctor/canary/solutions/torch.py", lambda text: text.replace("torch.mul(x, 2,", "torch.mul(x, 3,"))
    arena.edit("arena/doctor/canary/solutions/wrong_zeros.py", lambda text: text + "\n\nraise SystemError('no compiler')\n")
    done = arena("doctor", "--score")
    assert done.code == 2
    assert re.search(r"^missing canary torch +incorrect on cpu, .* s, and should be passed: y\[\d+\] is ", done.err, re.MULTILINE)
    assert re.search(
        r"^missing canary wrong_zeros +crashed on cpu, .* and should be incorrect: .*no compiler", done.err, re.MULTILINE
    )


def test_no_canary_is_scored_without_a_sandbox(shared: Arena, tmp_path: Path) -> None:
    done = shared("doctor", "--score", "--json", env={"PATH": str(tmp_path)})
    assert done.code == 2
    [canary] = [check for check in json.loads(done.out) if check["name"].startswith("canary")]
    assert canary == {"name": "canary", "state": "missing", "detail": "nothing can be scored without sandbox"}


@needs_sandbox
def test_absent_gpu_number_is_an_error(shared: Arena) -> None:
    pytest.importorskip("torch")
    done = shared("doctor", "--score", "--gpu", "99")
    assert done.code == 2
    assert "arena: there is no GPU 99" in done.err.splitlines()[-1]


@needs_sandbox
@pytest.mark.gpu
@pytest.mark.timing
@pytest.mark.slow
@pytest.mark.timeout(600)  # nvcc builds the extension anew in every worker, about a minute each
def test_canaries_pass_on_a_gpu(shared: Arena) -> None:
    done = shared("doctor", "--score", "--json", limit_s=550)
    reported = {check["name"]: check for check in json.loads(done.out)}
    wanted = ("gpu 0", "canary triton", "canary load_inline", "canary wrong_zeros")
    assert {name: reported[name]["state"] for name in wanted if name in reported} == dict.fromkeys(wanted, "ok"), reported
