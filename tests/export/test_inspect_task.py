"""Arena's problems as tasks of Inspect, with a mock model and the real judge."""

import json
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
from command import ROOT, Arena, needs_sandbox

pytest.importorskip("inspect_ai", reason="inspect-ai is not installed: scripts/setup inspect installs it")
SHIPPED = ROOT / "problems" / "paged_attention" / "solutions"
EVALUATE = """
import json, sys
from inspect_ai import eval as evaluate
from inspect_ai.model import ModelOutput, ModelUsage, get_model

def output(step):
    made = ModelOutput.for_tool_call("mockllm/model", step["tool"], step["arguments"]) if "tool" in step else (
        ModelOutput.from_content("mockllm/model", step["text"]))
    made.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
    return made

steps, options, folder = json.loads(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3]
model = get_model("mockllm/model", custom_outputs=[output(step) for step in steps])
given = {"hardware": "cpu", **options}
[log] = evaluate("arena/paged_attention", task_args=given, model=model, log_dir=folder, display="none", fail_on_error=False)
scores = log.results.scores if log.results else []
[sample] = log.samples
print(json.dumps({
    "status": log.status,
    "error": sample.error.message if sample.error else None,
    "scores": {name: json.loads(score.model_dump_json()) for name, score in (sample.scores or {}).items()},
    "messages": [json.loads(message.model_dump_json()) for message in sample.messages],
    "trust": log.eval.viewer.trust_content,
    "metrics": {name: metric.value for name, metric in scores[0].metrics.items()} if scores else {},
}))
"""


def evaluated(arena: Arena, folder: Path, *steps: dict[str, Any], **options: Any) -> Any:
    done = arena.python(EVALUATE, json.dumps(steps), json.dumps(options), str(folder / "logs"), limit_s=280)
    assert done.code == 0, done.err
    return json.loads(done.out.splitlines()[-1])


def fenced(source: str) -> str:
    return f"Here:\n```python\n{source}\n```\n"


@needs_sandbox
def test_an_answer_is_scored_by_the_judge(arena: Arena, tmp_path: Path):
    arena.one_shape()
    found = evaluated(arena, tmp_path, {"text": fenced((SHIPPED / "wrong_window.py").read_text())})
    score = found["scores"]["arena_judge"]
    assert (found["status"], score["value"], score["answer"]) == ("success", 0.0, "incorrect"), found["error"]
    assert found["trust"] is False and found["metrics"]["mean"] == 0.0
    assert score["metadata"]["score"]["verdict"] == "incorrect"
    asked = found["messages"][0]["content"]
    assert "def reference" in asked and "no tools" in asked and "minutes" not in asked


@needs_sandbox
@pytest.mark.parametrize(("name", "answer"), [("wrong_window", "incorrect"), ("naive", "passed")])
def test_the_command_line_ends_in_a_score(name: str, answer: str, arena: Arena, tmp_path: Path):
    """`inspect eval` as its user calls it, with a model that is a file: no key, and nothing from the network."""
    arena.one_shape()
    model = f"arena_file/{SHIPPED.relative_to(ROOT)}/{name}.py"
    words = ["eval", "arena/paged_attention", "--model", model, "-T", "hardware=cpu", "--log-dir", str(tmp_path / "logs")]
    done = subprocess.run(
        [sys.executable, "-m", "inspect_ai", *words, "--display", "plain", "--log-format", "json"],
        env=arena.environment(),
        cwd=arena.tree,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    [file] = (tmp_path / "logs").glob("*.json")
    log = json.loads(file.read_text())
    [sample] = log["samples"]
    assert (log["status"], sample["scores"]["arena_judge"]["answer"]) == ("success", answer), sample
    value = log["results"]["scores"][0]["metrics"]["mean"]["value"]
    assert 0 < value <= 1 if answer == "passed" else value == 0


def test_a_model_that_is_no_file_is_named(tmp_path: Path):
    from arena.errors import UsageError
    from arena.inspect_model import FileModel

    with pytest.raises(UsageError, match=r"arena_file/absent\.py: no such file"):
        FileModel("absent.py")


@pytest.mark.slow
@needs_sandbox
def test_tools_run_in_the_sandbox_and_a_kernel_passes(arena: Arena, tmp_path: Path):
    arena.one_shape()
    source = (SHIPPED / "naive.py").read_text()
    probe = "import os\nprint(os.getcwd(), sorted(os.listdir('/home')), os.path.exists('/root/.ssh'))\n"
    steps: list[dict[str, Any]] = [
        {"tool": "check", "arguments": {"file": probe}},
        {"tool": "check", "arguments": {"file": source}},
        {"tool": "benchmark", "arguments": {"file": source}},
        {"text": fenced(source)},
    ]
    found = evaluated(arena, tmp_path, *steps, tools=True)
    said = [message["content"] for message in found["messages"] if message["role"] == "tool"]
    assert "/workspace ['agent'] False" in said[0] and "FAIL" in said[0]
    assert "PASS" in said[1] and "us per call" in said[2]
    assert found["scores"]["arena_judge"]["answer"] == "passed" and 0 < found["metrics"]["mean"] <= 1


@needs_sandbox
@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("no block at all", "missing"),
        (fenced("import torch\ndef solution(*a): torch.nn.functional.scaled_dot_product_attention(*a)"), "forbidden"),
    ],
)
def test_what_cannot_be_measured_is_a_failure(text: str, answer: str, arena: Arena, tmp_path: Path):
    found = evaluated(arena, tmp_path, {"text": text})
    assert (found["scores"]["arena_judge"]["answer"], found["metrics"]["mean"]) == (answer, 0.0), found["error"]


@needs_sandbox
def test_a_failed_judge_is_an_error_without_a_score(arena: Arena, tmp_path: Path):
    (arena.tree / "problems/paged_attention/hidden.py").write_text("raise SystemExit(3)")
    found = evaluated(arena, tmp_path, {"text": fenced("def solution(*a): pass")})
    assert found["scores"] == {} and "arena's judge gave no score" in found["error"]


def test_the_entry_point_names_every_problem():
    from arena import catalog
    from arena.inspect_task import TASKS

    [point] = entry_points(group="inspect_ai", name="arena")
    assert point.value == "arena.inspect_task"
    assert TASKS.keys() == catalog.problems().keys()


def test_files_and_scores_are_read():
    from arena.inspect_task import file_in, read_score
    from arena.system.process import Finished

    assert file_in("```python\nx\n```\n```py\ndef solution(): ...\n```") == "def solution(): ...\n"
    assert file_in("none ```python\nx") == ""
    good = json.dumps({"verdict": "passed", "message": "", "peak_fraction": 0.5}).encode()
    assert (read_score(Finished(0, good, b"", 1.0, False)).value, read_score(Finished(0, good, b"", 1.0, False)).explanation) == (
        0.5,
        "passed",
    )
    for failed in (
        Finished(1, good, b"why", 1.0, False),
        Finished(2, b"", b"why", 1.0, False),
        Finished(0, good, b"", 1.0, True),
    ):
        with pytest.raises(RuntimeError, match="gave no score"):
            read_score(failed)
