"""`arena score --as kernelbench`: a ModelNew that computes passes, and one that does not never does. The task is our own."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from command import Arena
from submission import submitted

from arena import catalog, judge
from arena.authoring import contract
from arena.catalog import problem
from arena.cli.score import with_model_new
from arena.errors import UsageError
from arena.importing import kernelbench
from arena.importing.records import Imported
from arena.judge.sampling import CPU, GPU
from arena.sandboxes import Sandbox
from arena.schema import Profile, Score

TASK = """import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.first = nn.Linear(n, m)

    def forward(self, x):
        return torch.relu(self.first(x)) @ self.first.weight


batch_size = 4096
n, m = 256, 128
def get_inputs():
    return [torch.rand(batch_size, n)]

def get_init_inputs():
    return [n, m]
"""
NAME = "kb_l9_007"
HEAD = """import threading
import time

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.first = nn.Linear(n, m)
        self.kept = {}

"""
HONEST = """    def forward(self, x):
        return (x @ self.first.weight.T + self.first.bias).clamp_min(0) @ self.first.weight
"""
RIGHT = "((x @ self.first.weight.T + self.first.bias).clamp_min(0) @ self.first.weight)"
NEVER = {
    "zeros": "    def forward(self, x):\n        return torch.zeros_like(x)\n",
    "nothing": "    def forward(self, x):\n        return torch.empty_like(x)\n",
    "cached": f"""    def forward(self, x):
        if "answer" not in self.kept:
            self.kept["answer"] = {RIGHT}
        return self.kept["answer"]
""",
    "cached_by_address": f"""    def forward(self, x):
        key = (x.data_ptr(), self.first.weight.data_ptr(), x.shape)
        if key not in self.kept:
            self.kept[key] = {RIGHT}
        return self.kept[key]
""",
    "weights_of_the_first_call": """    def forward(self, x):
        if not self.kept:
            self.kept["weight"], self.kept["bias"] = self.first.weight.detach().clone(), self.first.bias.detach().clone()
        return (x @ self.kept["weight"].T + self.kept["bias"]).clamp_min(0) @ self.kept["weight"]
""",
    "weights_of_its_own": """    def forward(self, x):
        torch.manual_seed(0)
        own = nn.Linear(x.shape[1], self.first.weight.shape[0])
        return (x @ own.weight.T + own.bias).clamp_min(0) @ own.weight
""",
    "a_thread_that_is_not_done": f"""    def forward(self, x):
        out = self.kept.setdefault(x.shape, torch.zeros_like(x))
        def work():
            time.sleep(0.01)
            out.copy_({RIGHT})  # too late for this call's answer, and in time for the next one's
        threading.Thread(target=work).start()
        return out
""",
}
SIDE_STREAM = f"""    def forward(self, x):
        out = torch.zeros_like(x)
        if "stream" not in self.kept:
            self.kept["stream"] = torch.cuda.Stream()
        with torch.cuda.stream(self.kept["stream"]):
            torch.cuda._sleep(20_000_000)
            out.copy_({RIGHT})
        return out
"""
"""Computes on a stream that nobody waits for, so that the clock of the caller's stream sees no work."""
BRIEF = {
    "cpu": replace(CPU, processes=1, min_windows=3, max_windows=3, empty_windows=3, audit_windows=4, audit_sample=16),
    "gpu": replace(GPU, processes=1, counters=False),
}


def convert(out: Path, sandbox: Sandbox, **choices: object) -> Imported:
    path = out / "level9" / "7_Own.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(TASK)
    chosen = kernelbench.Choices(**choices)  # type: ignore[arg-type]
    return kernelbench.convert(path, out / kernelbench.problem_name(path, chosen.arithmetic), sandbox, chosen)


@pytest.fixture(scope="module")
def imported(sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the task, imported; it is one of the problems' folders for the length of these tests."""
    out = tmp_path_factory.mktemp("kbp")
    assert convert(out, sandbox).unfit == ""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ARENA_PROBLEMS", str(out))
        yield out


def scored(sandbox: Sandbox, source: bytes, name: str = NAME, profile: Profile = "cpu") -> Score:
    if profile == "gpu":
        import torch

        hardware = catalog.hardware_of(torch.cuda.get_device_name())
    else:
        hardware = catalog.hardware("cpu")
    return judge.score(submitted(source.decode()), problem(name), hardware, digest="", sandbox=sandbox, sampling=BRIEF[profile])


def model_new(folder: Path, body: str) -> bytes:
    file = folder / "model_new.py"
    file.write_text(HEAD + body)
    return with_model_new(file, NAME)


@pytest.mark.slow
def test_an_honest_model_new_passes(imported: Path, sandbox: Sandbox, tmp_path: Path) -> None:
    result = scored(sandbox, model_new(tmp_path, HONEST))
    assert (result.verdict, result.message) == ("passed", "")


@pytest.mark.slow
@pytest.mark.parametrize("how", NEVER)
def test_a_model_new_that_does_not_compute_never_passes(imported: Path, sandbox: Sandbox, tmp_path: Path, how: str) -> None:
    result = scored(sandbox, model_new(tmp_path, NEVER[how]))
    assert result.verdict == "incorrect", result.message


@pytest.mark.gpu
def test_a_side_stream_never_passes(imported: Path, sandbox: Sandbox, tmp_path: Path) -> None:
    assert scored(sandbox, model_new(tmp_path, HONEST), profile="gpu").verdict == "passed"
    result = scored(sandbox, model_new(tmp_path, SIDE_STREAM), profile="gpu")
    assert result.verdict in ("incorrect", "cheated"), result.message


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ("nn.Linear(n, m, bias=False)", "ModelNew's parameters are"),
        ("nn.Linear(m, n)", "ModelNew's parameters are"),
        ("nn.Linear(n, m).double()", "ModelNew's parameters are"),
    ],
)
def test_other_parameters_are_refused_with_a_sentence(
    imported: Path, sandbox: Sandbox, tmp_path: Path, changed: str, message: str
) -> None:
    source = model_new(tmp_path, HONEST).decode().replace("nn.Linear(n, m)", changed, 1)
    result = scored(sandbox, source.encode())
    assert result.verdict == "crashed"
    assert message in result.message


@pytest.mark.slow
def test_the_command_takes_a_model_new(imported: Path, shared: Arena, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(HEAD + NEVER["zeros"])
    words = ("--problems", str(imported), "score", str(file), "--as", "kernelbench", "--hardware", "cpu", "-p")
    done = shared(*words, NAME)
    assert (done.code, "incorrect" in done.err) == (0, True), done.err
    assert "is not imported from KernelBench" in shared.refused(*words, "paged_attention")


@pytest.mark.slow
def test_the_check_of_an_import_repeats_its_score(imported: Path, shared: Arena) -> None:
    done = shared("--problems", str(imported), "check", NAME, "--hardware", "cpu", "--json", limit_s=400)
    [report] = json.loads(done.out)
    found = {each["name"]: each for each in report["findings"]}
    assert (found["oracle over naive"]["got"], found["oracle twice"]["kind"]) == ("skipped", "repeat")
    # How far apart two scores are is a matter of this machine's load.
    assert [each for each in report["findings"] if not each["ok"] and each["kind"] != "repeat"] == []
    assert found["oracle twice"]["got"].endswith("%"), "both scores passed"
    assert found["wrong_coarser"]["got"] == found["cheat_first_answer"]["got"] == "incorrect"


@pytest.mark.slow
def test_chosen_sizes_are_the_shapes(sandbox: Sandbox, tmp_path: Path) -> None:
    given = {NAME: {"cpu": {"batch_size": 24, "n": 40}, "gpu": {"batch_size": 512}}}
    record = convert(tmp_path, sandbox, given=given)
    found = problem(NAME, tmp_path)
    assert dict(found.shapes["cpu"][0]) == {"batch_size": 24, "n": 40, "m": 128}
    assert dict(found.shapes["gpu"][0]) == {"batch_size": 512, "n": 256, "m": 128}
    assert record.original == {"batch_size": 4096, "n": 256, "m": 128}
    assert [each for each in contract.check(found, tmp_path / NAME) if not each.ok] == []


def test_an_unknown_size_lists_the_choices(sandbox: Sandbox, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=rf"--sizes: {NAME}: 'k' is no number of its module \(it has batch_size, n, m\)"):
        convert(tmp_path, sandbox, given={NAME: {"cpu": {"k": 1}}})
    assert not (tmp_path / NAME).exists()


@pytest.mark.slow
def test_the_command_reads_sizes(shared: Arena, tmp_path: Path) -> None:
    task, sizes = tmp_path / "level9" / "7_Own.py", tmp_path / "sizes.yaml"
    task.parent.mkdir()
    task.write_text(TASK)
    sizes.write_text(yaml.safe_dump({NAME: {"gpu": {"batch_size": 64}}}))
    words = ("import", "kernelbench", str(task), "--out", str(tmp_path / "kbp"), "--sizes", str(sizes))
    done = shared(*words)
    assert done.code == 0, done.err
    assert problem(NAME, tmp_path / "kbp").shapes["gpu"][0]["batch_size"] == 64
    sizes.write_text("- 1\n")
    assert "sizes.yaml" in shared.refused(*words)


@pytest.mark.slow
def test_with_rules_torchs_own_computing_is_forbidden(sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert convert(tmp_path, sandbox, rules=True).rules
    monkeypatch.setenv("ARENA_PROBLEMS", str(tmp_path))
    result = scored(sandbox, model_new(tmp_path, HONEST))
    assert (result.verdict, "nn.Linear" in result.message) == ("forbidden", True), result.message
    expected = {path.stem: path.read_text().partition("\n")[0] for path in (tmp_path / NAME / "solutions").glob("*.py")}
    assert expected.pop("wrong_zeros") == "# verdict: incorrect"
    assert set(expected.values()) == {"# verdict: forbidden"}
    zeros = (tmp_path / NAME / "solutions" / "wrong_zeros.py").read_bytes()
    assert scored(sandbox, zeros).verdict == "incorrect"


@pytest.mark.slow
def test_tf32_is_allowed_where_the_name_says_so(
    imported: Path, sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it allows passes, and the next coarser arithmetic does not; fp32's own tolerance is far below."""
    record, name = convert(tmp_path, sandbox, arithmetic="tf32"), f"{NAME}_tf32"
    assert (record.unfit, record.problem) == ("", name)
    assert problem(name, tmp_path).tolerance["rel_fro"] > 8 * problem(NAME, imported).tolerance["rel_fro"]
    folder = tmp_path / name
    assert not (folder / "baselines" / "eager_tf32_gpu.py").exists()
    assert (imported / NAME / "baselines" / "eager_tf32_gpu.py").exists()
    rounded_to_tf32 = (imported / NAME / "solutions" / "wrong_coarser.py").read_bytes()
    wrong = (folder / "solutions" / "wrong_coarser.py").read_bytes()
    assert b"rounded to tf32" in rounded_to_tf32 and b"rounded to fp8" in wrong
    assert scored(sandbox, rounded_to_tf32).verdict == "incorrect"
    monkeypatch.setenv("ARENA_PROBLEMS", str(tmp_path))
    assert scored(sandbox, rounded_to_tf32, name).verdict == "passed"
    assert scored(sandbox, wrong, name).verdict == "incorrect"


@pytest.mark.slow
def test_bf16_is_refused_where_fp8_is_too_near(sandbox: Sandbox, tmp_path: Path) -> None:
    """Numbers of fp8 have four bits less than those of bf16: errors 16 times as large, and no more where all is rounded alike."""
    record = convert(tmp_path, sandbox, arithmetic="bf16")
    assert record.unfit.startswith("no gap: fp8 is only so many times as far off as the allowed arithmetic")
    assert [path.name for path in tmp_path.iterdir()] == ["level9"]
