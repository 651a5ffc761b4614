"""Every problem as a task of Inspect, `arena/<problem>`, scored by arena's judge. Needs the package inspect-ai.

    inspect eval arena/paged_attention --model MODEL -T hardware=cpu -T tools=true

The model's calls are Inspect's own, not of arena's gateway, so a result is Inspect's and enters no annotation. What the model
writes runs in arena's sandbox alone: in the agent's for its own checks, in the judge's for the score.
"""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import anyio.to_thread
from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import GenerateConfig
from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr
from inspect_ai.solver import Solver, TaskState, generate, use_tools
from inspect_ai.tool import Tool, ToolDef
from inspect_ai.viewer import ViewerConfig

from arena import catalog, inspect_model, paths
from arena.files.text import render
from arena.judge.sampling import GPU
from arena.plan import problem_on
from arena.results import run_folder
from arena.results.run_folder import RunFolder
from arena.schema import Hardware, Problem
from arena.system import process, tempdirs
from arena.system.provenance import processor

FENCE = re.compile(r"^```[ \t]*(?:python|py)?[ \t]*\r?\n(.*?)^```", re.MULTILINE | re.DOTALL)
SCORE_S, TOOL_S = (GPU.processes + 2) * GPU.total_limit_s, 1200.0
BEGUN = "arena: begun"
"""What a tool's sandbox prints before any code of the model's runs."""
SHOWN_CHARACTERS = 6000
"""Of a tool's output, its beginning and its end."""
MESSAGES = 100
ALONE = threading.Lock()
"""Held by everything that computes: a score is taken, and a benchmark run, with nothing of this evaluation beside it."""
PROMPT = Path(__file__).with_name("inspect_task.md.j2")


def task_of(name: str) -> Callable[..., Task]:
    """The task of one problem."""

    def problem_task(hardware: str | None = None, tools: bool = False, messages: int = MESSAGES, gpu: int = 0) -> Task:
        """Write a kernel for one of arena's problems.

        Args:
            hardware: a name of `arena list hardware`; without it this machine's GPU, or `cpu`.
            tools: give the model `check` and `benchmark`. Without them its first answer counts.
            messages: the most messages of a conversation.
            gpu: index of the GPU, as CUDA counts.
        """
        problem, found = problem_on(name, hardware, gpu)
        offered = [tool_of(program, problem, found, gpu) for program in ("check", "benchmark")] if tools else []
        solver: list[Solver] = [use_tools(offered), generate()] if tools else [generate()]
        return Task(
            dataset=MemoryDataset(
                [Sample(id=name, input=prompt(problem, found, tools=tools), target="peak_fraction 1")], name="arena"
            ),
            solver=solver,
            scorer=judge(problem, found, gpu),
            message_limit=messages,
            config=GenerateConfig(),
            version=problem.version,
            metadata={"problem_digest": catalog.problem_digest(name), "hardware": found.name},
            viewer=ViewerConfig(trust_content=False),
        )

    return problem_task


def prompt(problem: Problem, hardware: Hardware, *, tools: bool) -> str:
    """The prompt of a run without a budget, the reference, and how to answer."""
    with tempdirs.folder() as path:
        folder, home = RunFolder(path), catalog.problem_folder(problem.name)
        folder.work.mkdir()
        shapes, kit = problem.shapes[hardware.profile], paths.problems() / "kit"
        machine = processor()
        text = run_folder.fill_workspace(
            folder, problem, hardware.profile, shapes, machine, None, problem_folder=home, kit_folder=kit
        )
        return render(PROMPT, prompt=text, tools=tools, reference=(folder.work / "reference.py").read_text())


def file_in(text: str) -> str:
    """The file in an answer: its longest block of Python, one that defines `solution` first; empty without any."""
    return max(FENCE.findall(text), key=lambda block: ("def solution" in block, len(block)), default="")


def tool_of(program: str, problem: Problem, hardware: Hardware, gpu: int) -> Tool:
    """A tool that runs check.py or benchmark.py on a file, in the agent's sandbox."""
    options = ("solution.py",) if program == "check" else ("--solution", "solution.py")

    async def run(file: str) -> str:
        words = ("--", "sh", "-c", f"echo {BEGUN}; exec python {program}.py {' '.join(options)} 2>&1")
        done = await anyio.to_thread.run_sync(lambda: _arena(file, "sandbox", problem, hardware, gpu, words, limit_s=TOOL_S))
        _, begun, said = done.stdout.decode(errors="replace").partition(f"{BEGUN}\n")
        if done.timed_out:
            said += f"\n{program}.py was not done after {TOOL_S:.0f} s"
        elif not begun:  # before any of the model's code
            raise RuntimeError(f"arena sandbox: {done.stderr.decode(errors='replace')[-500:]}")
        elif not said.strip():
            said = f"{program}.py ended without a word"
        return _ends(said)

    does = "Check a solution.py against the reference" if program == "check" else "Time a solution.py on the sizes that matter"
    return ToolDef(run, name=program, description=does, parameters={"file": "The whole text of solution.py."}).as_tool()


def judge(problem: Problem, hardware: Hardware, gpu: int) -> Scorer:
    """Arena's judge, in a process of its own."""

    def arena_judge() -> Scorer:
        async def score(state: TaskState, target: Target) -> Score:
            source = file_in(state.output.completion)
            done = await anyio.to_thread.run_sync(
                lambda: _arena(source, "score", problem, hardware, gpu, ("--json",), limit_s=SCORE_S)
            )
            return read_score(done)

        return score

    return scorer(metrics=[mean(), stderr()], name="arena_judge")(arena_judge)()


def read_score(done: process.Finished) -> Score:
    """The score in what `arena score --json` printed. RuntimeError where the judge or the machine failed: no statement about
    the answer, so the sample has an error and no score."""
    if done.returncode != 0 or done.timed_out:
        reason = "took too long" if done.timed_out else done.stderr.decode(errors="replace")[-500:]
        raise RuntimeError(f"arena's judge gave no score: {reason}")
    found = json.loads(done.stdout)
    return Score(
        value=found.get("peak_fraction", 0.0),
        answer=found["verdict"],
        explanation=found["message"] or found["verdict"],
        metadata={"score": found},
    )


def _arena(
    source: str, command: str, problem: Problem, hardware: Hardware, gpu: int, words: tuple[str, ...], *, limit_s: float
) -> process.Finished:
    """An arena command on a file with this source, alone on the machine as far as this evaluation goes."""
    with ALONE, tempdirs.folder() as folder:
        file = Path(folder, "solution.py")
        file.write_text(source, encoding="utf-8", errors="replace", newline="")
        options = ["--problem", problem.name, "--hardware", hardware.name, "--gpu", str(gpu)]
        given = ["--file", str(file)] if command == "sandbox" else [str(file)]
        return process.run([sys.executable, "-m", "arena", command, *options, *given, *words], limit_s=limit_s)


def _ends(text: str) -> str:
    if len(text) <= SHOWN_CHARACTERS:
        return text
    third = SHOWN_CHARACTERS // 3
    return f"{text[:third]}\n[... {len(text) - 3 * third} characters ...]\n{text[-2 * third :]}"


TASKS = {name: task(name=name)(task_of(name)) for name in catalog.problems()}
"""Every problem's task; making them registers them with Inspect."""
MODELS = (inspect_model.FileModel,)
"""Arena's models of Inspect, registered likewise."""
