"""One run of a cell, top to bottom: workspace, session, submission, score, annotation, leaderboard."""

import fcntl
import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, replace
from typing import Any, NamedTuple

import arena
from arena import catalog, judge, paths
from arena.agents import gpu_commands, session
from arena.agents.run_spec import RunSpec
from arena.agents.supervisor import Progress
from arena.errors import ArenaError, DataError, SandboxError, UsageError
from arena.files import documents
from arena.judge.sampling import Sampling
from arena.results import annotations, baselines, leaderboard, run_folder
from arena.results.run_folder import RunFolder, RunState
from arena.sandboxes import Sandbox
from arena.sandboxes.backends import backend
from arena.sandboxes.running import DYING_S, await_dying, forget_dying
from arena.schema import SCORE, Annotation, Cell, EndedSession, Hardware, Problem, Rejected, Score, SubmissionRecord
from arena.submission import NoSubmission, Submission, collect
from arena.system import tempdirs
from arena.system.provenance import origin, processor

Report = Callable[[Progress], None]


class Bench(NamedTuple):
    """What a submission is scored on."""

    problem: Problem
    hardware: Hardware
    gpu: int
    sandbox: Sandbox
    sampling: Sampling | None = None
    """Replaces the published effort."""


class Rehearsal(NamedTuple):
    """What a run would start."""

    command: tuple[str, ...]
    prompt: str


def rehearse(spec: RunSpec) -> Rehearsal:
    """The agent's command line and its prompt; nothing is started or kept. ArenaError when this machine cannot score it."""
    judge.preflight(spec.hardware, spec.gpu, spec.problem)
    with tempdirs.folder() as temporary:
        folder = RunFolder(temporary)
        folder.work.mkdir()
        prompt = _fill(spec, folder)
        given = spec.launch.sandbox_spec(spec.selected.harness.prompt, folder.work, prompt, key="KEY", gpu=None)
    return Rehearsal(tuple(given.command), prompt)


def run_cell(spec: RunSpec, report: Report = lambda progress: None) -> Annotation:
    """Play the session, score its submission, write the annotation and render the leaderboard. ArenaError."""
    with _session(spec, report) as (folder, ended, submission):
        bench = Bench(spec.problem, spec.hardware, spec.gpu, spec.sandbox)
        annotation = _judge(bench, spec.cell(), ended, submission, folder, report)
    render()
    return annotation


def play_cell(spec: RunSpec, report: Report = lambda progress: None) -> str:
    """Play the session alone, and return the run's id: `judge_run` scores its submission later. ArenaError."""
    with _session(spec, report) as (folder, _, _):
        return folder.run_id


@contextmanager
def _session(spec: RunSpec, report: Report) -> Iterator[tuple[RunFolder, EndedSession, Submission | None]]:
    """The run's folder, held for the block, with its session over and on the disk."""
    report(Progress("start", "looking at the machine"))
    backend(spec.sandbox_name)  # proves the sandbox again: the machine may have changed since the plan was made
    # Is the device there, the right one, free and large enough?
    device_node = judge.preflight(spec.hardware, spec.gpu, spec.problem, shared=spec.leased is not None)
    if isinstance(spec.leased, gpu_commands.OwnTurns):
        spec = replace(spec, leased=gpu_commands.OwnTurns(device_node, spec.lease_s))
    with run_folder.create(spec.cell(), manifest=_manifest(spec), root=paths.workspaces()) as folder:
        try:
            played = _play(spec, folder, None if spec.leased else device_node, report)
            ended = EndedSession(session=played.session, submission=_record(played.submission), reason=played.reason)
            run_folder.end_session(folder, ended, played.submission.source if played.submission else None)
            await_end(folder, report)
        except ArenaError as error:
            folder.event("failed", message=str(error))
            raise
        yield folder, ended, played.submission


def judge_run(
    state: RunState,
    gpu: int | None = None,
    report: Report = lambda progress: None,
    *,
    beside: str = "",
    sampling: Sampling | None = None,
    hold: Callable[[Hardware, frozenset[int]], AbstractContextManager[None]] = lambda hardware, gpus: nullcontext(),
) -> Annotation:
    """Score a run whose session has ended but that has no score, or whose judge failed. Nothing of the session is played again.

    Args:
        state: the run.
        gpu: index of the GPU; without it the run's own.
        beside: what else is at work on this machine meanwhile, for the record.
        sampling: replaces the published effort, for a demonstration with built-in agents. The score says so; no command takes it.
        hold: keeps others from the GPU meanwhile, where no sweep does so already.

    Raises:
        UsageError: there is nothing to judge, or it would not be the same measurement.
        ArenaError: this machine cannot score it.
    """
    run, cell = state.run, state.cell
    with run_folder.reopen(run):
        _refuse_judged(run)
        if not run.session.exists():
            raise UsageError(
                f"run {run.run_id} was interrupted before its session ended: nothing can be judged; run the cell again"
            )
        if cell is None:
            raise DataError(f"{run.manifest}: this version of arena cannot read its cell")
        if sampling and cell.harness != "builtin":
            raise UsageError(f"run {run.run_id}: only a built-in agent is timed otherwise than the published method says")
        if catalog.problem_digest(cell.problem) != cell.problem_digest:
            raise UsageError(
                f"run {run.run_id}: problem {cell.problem} has changed since. Check out the version that its manifest names, and "
                "judge it there"
            )
        ended, submission = _read_session(run)
        manifest = json.loads(run.manifest.read_bytes())
        report(Progress("start", "looking at the machine"))
        number = gpu if gpu is not None else manifest.get("gpu") or 0
        bench = Bench(
            catalog.problem(cell.problem), catalog.hardware(cell.hardware), number, backend(manifest["sandbox"]), sampling
        )
        with hold(bench.hardware, frozenset({bench.gpu})):
            # Beside processes of the session that never die the score itself says what they prevent.
            judge.preflight(bench.hardware, bench.gpu, shared=_left_dying(run))
            annotation = _judge(bench, cell, ended, submission, run, report, beside)
    render()
    return annotation


def _refuse_judged(run: RunFolder) -> None:
    """UsageError when the run has a score that is not the judge's own failure."""
    if not run.result.exists():
        return
    verdict = documents.read_yaml(run.result, Annotation).score.verdict
    if verdict != "judge_failed":
        raise UsageError(f"run {run.run_id} has its score already ({verdict}); `arena score` scores its solution.py apart")


def _read_session(run: RunFolder) -> tuple[EndedSession, Submission | None]:
    """How the session ended, and its submission. DataError when the submission is not the one that the session left."""
    ended = documents.read_json(run.session, EndedSession)
    if ended.submission is None:
        return ended, None
    try:
        submission = collect(run.folder, run.solution.name)
    except NoSubmission as absent:
        raise DataError(f"{run.solution}: {absent.reason}") from None
    if submission.sha256 != ended.submission.sha256:
        raise DataError(f"{run.solution}: is not the submission of this run, whose sha256 is in session.json; restore it")
    return ended, submission


def render() -> None:
    """Rebuild `leaderboard/` from `annotations/` and `baselines/`."""
    paths.workspaces().mkdir(parents=True, exist_ok=True)
    # Of two runs that end together, the one that reads last must write last, or the other's result would be missing.
    with (paths.workspaces() / ".render").open("wb") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        leaderboard.write(paths.leaderboard(), annotations.read_all(paths.annotations()), baselines.read_all(paths.baselines()))


def _play(spec: RunSpec, folder: RunFolder, device_node: int | None, report: Report) -> session.Played:
    """The session, in a workspace filled for it."""
    prompt = _fill(spec, folder)
    folder.event("filled", prompt_sha256=hashlib.sha256(prompt.encode()).hexdigest())
    return session.play(spec, folder, prompt, device_node=device_node, report=report)


def _fill(spec: RunSpec, folder: RunFolder) -> str:
    """Fill the workspace; the prompt."""
    profile = spec.hardware.profile
    prompt = run_folder.fill_workspace(
        folder,
        spec.problem,
        profile,
        spec.problem.shapes[profile],
        processor(),
        spec.times.budget_s,
        problem_folder=catalog.problem_folder(spec.problem.name),
        kit_folder=paths.problems() / "kit",
    )
    return gpu_commands.share(folder.work, prompt, spec.lease_s) if spec.leased else prompt


def await_end(folder: RunFolder, report: Report, limit_s: float = DYING_S) -> None:
    """Wait until a sandbox that was killed is empty: nothing is to be measured beside it.

    One that hangs in the kernel is left behind after the limit, and the score is taken beside it, which can only lower it: an
    agent that could make its run uncounted in this way would. Where the judge fails beside it, that is a verdict (`_charged`).
    """
    try:
        await_dying(0.0)
        return
    except SandboxError:
        report(Progress("dying", "the agent's sandbox was killed and is not empty yet"))
    try:
        await_dying(limit_s)
    except SandboxError as error:
        folder.event("left_dying", message=str(error), processes=forget_dying())


def _judge(
    bench: Bench,
    cell: Cell,
    ended: EndedSession,
    submission: Submission | None,
    folder: RunFolder,
    report: Report,
    beside: str = "",
) -> Annotation:
    """Score the submission, commit the run and publish its annotation."""
    try:
        score = _score(bench, cell.problem_digest, submission, ended.reason, folder, report, beside)
    except ArenaError as error:
        folder.event("failed", message=str(error))
        raise
    annotation = Annotation(
        run_id=folder.run_id,
        arena_version=arena.__version__,
        cell=cell,
        session=ended.session,
        submission=ended.submission,
        score=score,
    )
    run_folder.commit(folder, annotation)
    annotations.publish(folder, annotation, paths.annotations())
    return annotation


def _score(
    bench: Bench, digest: str, submission: Submission | None, reason: str, folder: RunFolder, report: Report, beside: str
) -> Score:
    """The judge is given the submission and nothing of the session."""
    if folder.score.exists() and (kept := documents.read_json(folder.score, SCORE)).verdict != "judge_failed":
        return kept  # arena was killed between score and commit: no score is drawn again
    beside_dying = _left_dying(folder)
    if submission is None:
        score: Score = judge.missing(reason, bench.problem, bench.hardware, digest)
    else:
        score = judge.score(
            submission,
            bench.problem,
            bench.hardware,
            digest=digest,
            sandbox=bench.sandbox,
            report=lambda text: report(Progress("judge", text)),
            sampling=bench.sampling,
            logs=folder.folder / "judge",
            gpu=bench.gpu,
        )
    if beside_dying:
        score = _charged(score)
    if beside and score.verdict != "missing":
        score = score.model_copy(update={"environment": {**score.environment, "beside": beside}})
    folder.free_room()  # the logs of the judge's workers have no part in it
    documents.write_json(folder.score, score)
    return score


def _charged(score: Score) -> Score:
    """The score that was taken beside processes of the session that do not end: where the judge failed, a verdict that counts."""
    if score.verdict != "judge_failed":
        return score
    text = "processes of the session did not end after their kill, and beside them nothing could be scored"
    return Rejected(**{**dict(score), "verdict": "timed_out", "message": f"{text}: {score.message}"})


def _left_dying(folder: RunFolder) -> bool:
    """Whether processes of the session that `await_end` left behind are still there."""
    events = run_folder.read_events(folder)
    left = [name for event in events if event["kind"] == "left_dying" for name in event.get("processes", ())]
    return not all(map(tempdirs.ended, left))


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
        "program": cli.recorded(harness.cli) if cli and harness.cli else None,
        "base_url": spec.access.route.base_url if spec.access else None,
        "answers_as": list(spec.access.answers_as) if spec.access else [],
        "allow": spec.access.route.allow.model_dump(mode="json") if spec.access else None,
        "caps": asdict(spec.access.caps) if spec.access else None,
        "network": spec.network.recorded(),
        "allowed": [str(rule) for rule in spec.network.allowed],
        "gpu": spec.gpu if spec.hardware.profile == "gpu" else None,
        "login": spec.login,
        "told_budget_s": spec.times.budget_s,
        "lease_s": spec.lease_s if spec.leased else None,
        "sweep": spec.sweep.model_dump() if spec.sweep else None,
    }
