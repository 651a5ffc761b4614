"""One run of a cell, top to bottom: workspace, session, submission, score, annotation, leaderboard."""

import fcntl
import hashlib
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import arena
from arena import paths
from arena.agents import session
from arena.agents.run_spec import RunSpec
from arena.agents.supervisor import Progress
from arena.errors import ArenaError, SandboxError
from arena.files import documents
from arena.results import annotations, baselines, leaderboard, run_folder
from arena.results.run_folder import RunFolder
from arena.sandboxes.backends import backend
from arena.sandboxes.running import DYING_S, await_dying, forget_dying
from arena.schema import Annotation, Score, SubmissionRecord
from arena.submission import Submission
from arena.system.provenance import origin, processor

Report = Callable[[Progress], None]


def run_cell(spec: RunSpec, report: Report = lambda progress: None) -> Annotation:
    """Play the session, score its submission, write the annotation and render the leaderboard. ArenaError."""
    report(Progress("start", "looking at the machine"))
    backend(spec.sandbox_name)  # proves the sandbox again: the machine may have changed since the plan was made
    from arena import judge  # torch takes a second to import

    # Is the device there, the right one, and free?
    device_node = judge.preflight(spec.hardware, spec.gpu)
    cell = spec.cell()
    with run_folder.create(cell, manifest=_manifest(spec), root=paths.workspaces()) as folder:
        try:
            played, submission, reason = _play(spec, folder, device_node, report)
            folder.event("collected", sha256=submission.sha256 if submission else None, reason=reason)
            await_end(folder, report)
            score = _score(spec, cell.problem_digest, submission, reason, folder, report)
        except ArenaError as error:
            folder.event("failed", message=str(error))
            raise
        annotation = Annotation(
            run_id=folder.run_id,
            arena_version=arena.__version__,
            cell=cell,
            session=played,
            submission=_record(submission),
            score=score,
        )
        run_folder.commit(folder, annotation)
        annotations.publish(folder, annotation, paths.annotations())
    render()
    return annotation


def render() -> None:
    """Rebuild `leaderboard/` from `annotations/` and `baselines/`."""
    paths.workspaces().mkdir(parents=True, exist_ok=True)
    # Of two runs that end together, the one that reads last must write last, or the other's result would be missing.
    with (paths.workspaces() / ".render").open("wb") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        leaderboard.write(paths.leaderboard(), annotations.read_all(paths.annotations()), baselines.read_all(paths.baselines()))


def _play(spec: RunSpec, folder: RunFolder, device_node: int | None, report: Report) -> session.Played:
    """The session, in a workspace filled for it."""
    profile = spec.hardware.profile
    prompt = run_folder.fill_workspace(
        folder,
        spec.problem,
        profile,
        spec.problem.shapes[profile],
        processor(),
        spec.times.budget_s,
        problem_folder=paths.problems() / spec.problem.name,
        kit_folder=paths.problems() / "kit",
    )
    folder.event("filled", prompt_sha256=hashlib.sha256(prompt.encode()).hexdigest())
    return session.play(spec, folder, prompt, device_node=device_node, report=report)


def await_end(folder: RunFolder, report: Report, limit_s: float = DYING_S) -> None:
    """Wait until a sandbox that was killed is empty: nothing is to be measured beside it.

    One that hangs in the kernel is left behind after the limit, and the score is taken beside it, which can only lower it: an
    agent that could make its run uncounted in this way would.
    """
    try:
        await_dying(0.0)
        return
    except SandboxError:
        report(Progress("dying", "the agent's sandbox was killed and is not empty yet"))
    try:
        await_dying(limit_s)
    except SandboxError as error:
        folder.event("left_dying", message=str(error))
        forget_dying()


def _score(spec: RunSpec, digest: str, submission: Submission | None, reason: str, folder: RunFolder, report: Report) -> Score:
    """The judge is given the submission and nothing of the session."""
    from arena import judge

    if submission is None:
        score: Score = judge.missing(reason, spec.problem, spec.hardware, digest)
    else:
        documents.write_bytes(folder.solution, submission.source)
        score = judge.score(
            submission,
            spec.problem,
            spec.hardware,
            digest=digest,
            sandbox=spec.sandbox,
            report=lambda text: report(Progress("judge", text)),
            logs=folder.folder / "judge",
            gpu=spec.gpu,
        )
    folder.free_room()  # the logs of the judge's workers have no part in it
    documents.write_json(folder.score, score)
    return score


def _record(submission: Submission | None) -> SubmissionRecord | None:
    if submission is None:
        return None
    return SubmissionRecord(sha256=submission.sha256, bytes=len(submission.source), lines=submission.lines)


def _manifest(spec: RunSpec) -> dict[str, Any]:
    """What a run depended on, besides the cell. Keys and login files are never written."""
    harness, cli = spec.selected.harness, spec.launch.cli
    return {
        **origin(),
        "sandbox": spec.sandbox_name,
        "program": cli.recorded(harness.cli.program) if cli and harness.cli else None,
        "base_url": spec.access.route.base_url if spec.access else None,
        "allow": spec.access.route.allow.model_dump(mode="json") if spec.access else None,
        "caps": asdict(spec.access.caps) if spec.access else None,
        "network": spec.network.recorded(),
        "allowed": [str(rule) for rule in spec.network.allowed],
        "gpu": spec.gpu if spec.hardware.profile == "gpu" else None,
        "login": spec.login,
        "told_budget_s": spec.times.budget_s,
    }
