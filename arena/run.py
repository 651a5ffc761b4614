"""One attempt at one cell: workspace, session, submission, score, annotation. It reads like the data's one-way trip."""

import fcntl
import hashlib
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import arena
from arena import catalog, paths
from arena.agents import install, replay, session
from arena.agents.launch import logged_in, takes_effort, words_of
from arena.agents.model_access import PATIENCE_S, asked, for_login
from arena.agents.supervisor import Progress, Terms
from arena.errors import ArenaError, UsageError
from arena.files import documents
from arena.gateway.config import Caps, ModelAccess
from arena.gateway.network import Network
from arena.results import annotations, baselines, leaderboard, run_folder
from arena.sandboxes import Sandbox
from arena.sandboxes.backends import backend
from arena.schema import Annotation, Cell, Hardware, Problem, Score, Session, SubmissionRecord
from arena.submission import SUBMISSION_BYTES, NoSubmission, Submission, collect
from arena.system import machine
from arena.system.provenance import origin


@dataclass(frozen=True)
class Attempt:
    """What is to be run."""

    chosen: catalog.SelectedModel
    problem: Problem
    hardware: Hardware
    terms: Terms
    sandbox_name: str
    sandbox: Sandbox
    tape: bytes | None
    """What a built-in model will do; None for one that thinks for itself."""
    gpu: int
    """Which GPU, as CUDA counts; of no meaning on hardware `cpu`."""
    network: Network
    """What the agent may reach besides its model. A submission never has a network."""
    asked: ModelAccess | None
    """Its model, as the gateway is told; None for one without."""
    login: bool
    """Whether its program uses a person's subscription instead."""
    program: install.InstalledCli | None
    """The agent's own; None for one that needs none."""

    def cell(self) -> Cell:
        """The attempt's identity in the record."""
        return Cell(
            problem=self.problem.name,
            problem_version=self.problem.version,
            problem_digest=catalog.problem_digest(self.problem.name),
            harness=self.chosen.harness.name,
            harness_digest=catalog.harness_digest(self.chosen.harness.name),
            model=self.chosen.model_name,
            model_id=(self.chosen.model.id or self.chosen.model_name) if self.chosen.model.route else None,
            route=self.chosen.model.route,
            provider=self.chosen.model.provider,
            effort=self.chosen.model.effort,
            hardware=self.hardware.name,
            budget_s=self.terms.budget_s,
            without_backoff=self.terms.without_backoff,
        )


Report = Callable[[Progress], None]


def with_effort(chosen: catalog.SelectedModel, effort: str | None) -> catalog.SelectedModel:
    """The model at that effort instead of its own. UsageError when its harness takes none, or needs one and has none."""
    harness = chosen.harness
    if effort is not None:
        if not takes_effort(harness):
            raise UsageError(f"harness {harness.name} takes no effort (nothing of it has {{effort}}): leave --effort out")
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", effort):
            raise UsageError(f"--effort {effort!r}: give a word such as low, high or max")
        chosen = chosen._replace(model=chosen.model.model_copy(update={"effort": effort}))
    words_of(chosen)
    return chosen


def home() -> Path:
    """The folder of all results, made if there is none; ArenaError when it cannot be written."""
    folder = paths.home()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError as error:
        raise ArenaError(f"{folder}: cannot be written ({error.strerror}); set ARENA_HOME to a folder that can") from None


def attempt(
    chosen: catalog.SelectedModel,
    problem: Problem,
    hardware: Hardware,
    *,
    terms: Terms,
    sandbox_name: str,
    gpu: int,
    network: Network = Network(),  # noqa: B008  frozen
    caps: Caps = Caps(),  # noqa: B008
    patience_s: float = PATIENCE_S,
    login: bool = False,
) -> Attempt:
    """What is asked for, with all that is missing or misspelt refused now. ArenaError."""
    plays = replay.tape(chosen, paths.problems() / problem.name, hardware.profile, paths.workspaces())
    installed = install.found(chosen.harness)
    to = None if login else asked(chosen, caps, patience_s)
    if login:
        if caps != Caps() or patience_s != PATIENCE_S or terms.without_backoff:
            raise UsageError("with --login nothing is metered: --max-..., --patience and --exclude-backoff mean nothing")
        logged_in(chosen.harness)
        network = for_login(network, chosen.harness)
    ready()
    return Attempt(
        chosen,
        problem,
        hardware,
        terms,
        sandbox_name,
        backend(sandbox_name),
        plays,
        gpu,
        network,
        asked=to,
        login=login,
        program=installed,
    )


def ready() -> None:
    """Before anybody's time is spent: can results be kept, and can those that are there be read? ArenaError if not."""
    home()
    settle()
    annotations.read_all(paths.annotations())
    baselines.read_all(paths.baselines())


def run(attempt: Attempt, report: Report) -> Annotation:
    """Play the session, judge what it left, write the annotation and render the leaderboard."""
    report(Progress("start", "looking at the machine"))
    backend(attempt.sandbox_name)  # proves the wall anew: somebody may have changed the machine since the last run
    from arena import judge  # torch takes a second to import, and whoever only lists runs need not wait for it

    # Is the device there, the right one, and free?
    node = judge.preflight(attempt.hardware, attempt.gpu)
    cell = attempt.cell()
    with run_folder.create(cell, manifest=_manifest(attempt), root=paths.workspaces()) as folder:
        try:
            played = _play(attempt, folder, node, report)
            submission, reason = _take(folder)
            score = _score(attempt, cell, submission, reason, folder, report)
        except ArenaError as error:
            folder.event("failed", message=str(error))
            raise
        annotation = Annotation(
            run_id=folder.run_id,
            arena_version=arena.__version__,
            cell=cell,
            session=played,
            submission=_taken(submission),
            score=score,
        )
        run_folder.commit(folder, annotation)
        _annotate(folder, annotation)
    render()
    return annotation


def settle() -> None:
    """Write the annotations of runs that were ended just after their commit. One that a person took away stays away."""
    for entry in run_folder.runs(paths.workspaces()):
        annotation = paths.annotations() / f"{entry.run.run_id}.yaml"
        if entry.state != "committed" or annotation.exists():
            continue
        if not any(event["kind"] == "annotated" for event in run_folder.events(entry.run)):
            _annotate(entry.run, documents.read_yaml(entry.run.result, Annotation))


def render() -> None:
    """Rebuild `leaderboard/` from `annotations/` and `baselines/`."""
    paths.workspaces().mkdir(parents=True, exist_ok=True)
    # Of two runs that end together, the one that reads last must write last, or the other's result would be missing.
    with (paths.workspaces() / ".render").open("wb") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        leaderboard.write(paths.leaderboard(), annotations.read_all(paths.annotations()), baselines.read_all(paths.baselines()))


def _play(attempt: Attempt, folder: run_folder.RunFolder, node: int | None, report: Report) -> Session:
    """The session, in a workspace filled for it."""
    profile = attempt.hardware.profile
    prompt = run_folder.fill(
        folder,
        attempt.problem,
        profile,
        attempt.problem.shapes[profile],
        machine.processor(),
        problem_folder=paths.problems() / attempt.problem.name,
        kit_folder=paths.problems() / "kit",
    )
    folder.event("filled", prompt_sha256=hashlib.sha256(prompt.encode()).hexdigest())
    return session.play(
        attempt.chosen,
        folder,
        terms=attempt.terms,
        sandbox=attempt.sandbox,
        sandbox_name=attempt.sandbox_name,
        prompt=prompt,
        tape=attempt.tape,
        gpu=node,
        network=attempt.network,
        asked=attempt.asked,
        login=attempt.login,
        report=report,
    )


def _take(folder: run_folder.RunFolder) -> tuple[Submission | None, str]:
    """What the session left, frozen; or None and why."""
    try:
        submission: Submission | None = collect(folder.work, cap_bytes=SUBMISSION_BYTES)
        reason = ""
    except NoSubmission as none:
        submission, reason = None, none.reason
    folder.event("collected", sha256=submission.sha256 if submission else None, reason=reason)
    return submission, reason


def _annotate(folder: run_folder.RunFolder, annotation: Annotation) -> None:
    annotations.write(paths.annotations(), annotation)
    folder.event("annotated")


def _score(
    attempt: Attempt, cell: Cell, submission: Submission | None, reason: str, folder: run_folder.RunFolder, report: Report
) -> Score:
    """The judge is given the submission and nothing of the run."""
    from arena import judge

    if submission is None:
        score: Score = judge.missing(reason, attempt.problem, attempt.hardware, cell.problem_digest)
    else:
        documents.write_bytes(folder.solution, submission.source)
        score = judge.score(
            submission,
            attempt.problem,
            attempt.hardware,
            digest=cell.problem_digest,
            sandbox=attempt.sandbox,
            report=lambda text: report(Progress("judge", text)),
            logs=folder.folder / "judge",
            gpu=attempt.gpu,
        )
    documents.write_json(folder.score, score)
    return score


def _taken(submission: Submission | None) -> SubmissionRecord | None:
    if submission is None:
        return None
    return SubmissionRecord(sha256=submission.sha256, bytes=len(submission.source), lines=submission.lines)


def _manifest(attempt: Attempt) -> dict[str, Any]:
    """What a run depended on, besides the cell."""
    return {
        **origin(),
        "sandbox": attempt.sandbox_name,
        "program": attempt.program.recorded(attempt.chosen.harness.cli.program)
        if attempt.program and attempt.chosen.harness.cli
        else None,
        "base_url": attempt.asked.route.base_url if attempt.asked else None,
        "network": attempt.network.recorded(),
        "allowed": [str(rule) for rule in attempt.network.allowed],
    }
