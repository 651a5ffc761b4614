"""Scores, sessions and measured speeds as text for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table

from arena.cli.console import safe, tell, tell_table, verdict
from arena.schema import (
    Annotation,
    Attainable,
    Device,
    Evidence,
    Hardware,
    Passed,
    Rejected,
    Score,
    Session,
    ShapeScore,
    TimedShape,
    Usage,
)

MOST_NAMES = 6
"""Kernels named on the launch line; the annotation has all."""


def show_score(score: Score) -> None:
    """Print a score: the table of shapes when it passed, the reason when it did not."""
    if not isinstance(score, Passed):
        tell(f"verdict {verdict(score.verdict)}: {safe(score.message)}")
        if isinstance(score, Rejected) and score.shape:
            tell(f"  on {words(score.shape)}, input class {safe(score.input_class)}")
    else:
        tell(f"{score.problem} on {safe(score.device.name)}, {_ceilings(score.device)}")
        tell_table(_shapes(score))
        unsteady = ", [bold yellow]unsteady[/]" if score.unsteady else ""
        tell(f"verdict {verdict('passed')}, peak_fraction [bold]{score.peak_fraction:.4f}[/] (geometric mean){unsteady}")
        if score.evidence:
            tell(safe(_launched(score.evidence)))
        if score.message:
            tell(f"[bold yellow]{safe(score.message)}[/]")
        if busy := score.environment.get("busy"):
            tell(f"[bold yellow]busy machine:[/] {safe(busy)}; times may be long, the score low. Score again when it is idle")
        if busy := score.environment.get("ceilings_busy"):
            tell(
                f"[bold yellow]low ceilings:[/] measured while {safe(busy)}; the score may be high. "
                "Run `arena calibrate --hardware cpu` when the machine is idle"
            )
        for known in score.similar:
            tell(f"holds {known.share:.2f} of a well-known kernel: {safe(known.source)}")
        for shape in (*score.shapes, *score.latency):
            if shape.unsteady:
                scatter = f"its 95 % interval is ± {shape.half_width():.1%}, its processes lie {shape.apart():.1%} apart"
                tell(f"unsteady {words(shape.shape)}: {scatter}")
            for reason in shape.disturbed:
                tell(f"retimed {words(shape.shape)}: {safe(reason)}")
        if score.unsteady and not any(shape.unsteady for shape in score.shapes):
            why = safe(score.environment.get("throttle", "no reason recorded"))
            tell(f"unsteady: the driver slowed the device down meanwhile ({why}); mend its cooling or power, and score again")
        if score.review_suggested:
            tell(
                "Review it before you cite it: a shape is unsteady, above 0.95 of its ceiling or was retimed more than once, "
                "calls may have overlapped, the device did not keep its speed, kernels or counters are missing, or it holds much "
                "of a well-known kernel."
            )
    spent = score.timings
    parts = {"build": spent.build_s, "check": spent.check_s, "benchmark": spent.benchmark_s, "evidence": spent.evidence_s}
    tell(f"scored in {spent.total_s:.1f} s: {', '.join(f'{name} {seconds:.1f}' for name, seconds in parts.items())}")


def uncounted(annotation: Annotation) -> str:
    """Why the leaderboard does not count the run; empty when it does."""
    if annotation.review and annotation.review.verdict == "bug":
        return "bug"
    if annotation.session.agent_status == "provider_error":
        return "provider_error"
    return "judge_failed" if annotation.score.verdict == "judge_failed" else ""


def show_session(session: Session) -> None:
    """Print what a session used of its model, and whether it was unpinned or unsealed."""
    if session.usage:
        tell(safe(usage_words(session.usage)))
    if session.leases:
        waited = f"waited {session.waited_s:.1f} s for others, {session.credit_s:.1f} s of it added to the budget"
        tell(f"{session.leases} turns on a shared GPU, {session.leased_s:.1f} s in all; {waited}")
    if session.unpinned:
        tell("[bold yellow]unpinned:[/] the broker chose the provider; the leaderboard marks the run")
    if session.unsealed:
        tell("[bold yellow]unsealed:[/] the agent had this machine's network; the leaderboard marks the run")


def usage_words(usage: Usage) -> str:
    """The use of the model on one line."""
    tokens_in = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
    cost = "cost unknown" if usage.cost_usd is None else f"{usage.cost_usd:.4f} USD ({usage.cost_source})"
    if usage.cost_at_least_usd is not None:
        cost = f"at least {usage.cost_at_least_usd:.4f} USD"
    failed = f", {usage.failed} of them failed" if usage.failed else ""
    unmetered = f", {usage.unmetered} of them unmetered" if usage.unmetered else ""
    tokens_out = usage.output_tokens + usage.reasoning_tokens
    return f"model {usage.requests} requests{failed}{unmetered}; {tokens_in} tokens in, {tokens_out} out; {cost}"


def _shapes(score: Passed) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("shape", overflow="fold")
    for header in ("time", "95 %", "ceiling", "fraction"):
        table.add_column(header, justify="right", no_wrap=True)
    table.add_column("bound", no_wrap=True)
    if score.device.attainable:
        table.add_column("attained", justify="right", no_wrap=True)
    for shape in score.shapes:
        fraction = (f"{shape.ceiling_s * 1e6:.1f} us", f"{shape.peak_fraction:.4f}", shape.bound)
        table.add_row(*_time(shape), *fraction, *_attained(shape, score.device))
    for small in score.latency:
        table.add_row(*_time(small), "", "not scored")
    return table


def _ceilings(device: Device) -> str:
    """The origin of the ceilings, and the bandwidth that this device attains."""
    if (found := device.attainable) is None:
        return f"{device.ceilings} ceilings"
    return f"{device.ceilings} ceilings: {device.bandwidth_gb_s:.0f} GB/s, of which this GPU attains {_bandwidth(found):.0f}"


def _bandwidth(found: Attainable) -> float:
    """The best measured DRAM bandwidth of the device, GB/s."""
    return max(found.copy_gb_s, found.read_gb_s)


def _attained(shape: ShapeScore, device: Device) -> tuple[str, ...]:
    """The fraction of the speed that this device attains; empty where `arena calibrate` did not measure it."""
    if (found := device.attainable) is None:
        return ()
    if shape.bound == "memory":
        return (f"{shape.peak_fraction * device.bandwidth_gb_s / _bandwidth(found):.4f}",)
    if shape.rate not in found.tflops:
        return ("",)
    return (f"{shape.peak_fraction * device.tflops[shape.rate] / found.tflops[shape.rate]:.4f}",)


def _launched(found: Sequence[Evidence]) -> str:
    """The launched kernels on one line, with the proof."""
    names = dict.fromkeys(kernel.name.partition("(")[0][:60] for evidence in found for kernel in evidence.kernels)
    shown = ", ".join(list(names)[:MOST_NAMES]) + (f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else "")
    types = sorted({name for evidence in found for name in evidence.tensor_ops or ()})
    if found[0].proof != "counters":
        proof = f"unproven: {found[0].note}"
    elif found[0].tensor_ops is None:
        proof = "counters read"
    else:
        proof = f"tensor cores multiplied {', '.join(types) or 'nothing'}"
    return f"launched {shown or 'nothing that was seen'}; {proof}"


def _time(shape: TimedShape) -> tuple[str, ...]:
    interval = f"{'unsteady ' if shape.unsteady else ''}± {shape.half_width():.1%}"
    return words(shape.shape), f"{shape.measured_s * 1e6:.1f} us", interval


def show_attainable(found: Attainable, hardware: Hardware) -> None:
    """Print what a GPU attains beside its datasheet."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("quantity", no_wrap=True)
    for header in ("measured", "datasheet", "share"):
        table.add_column(header, justify="right", no_wrap=True)
    bandwidth = hardware.bandwidth_gb_s
    rows = [("copy", found.copy_gb_s, bandwidth, "GB/s"), ("read", found.read_gb_s, bandwidth, "GB/s")]
    for rate, value in found.tflops.items():
        rows.append((f"{rate} product", value, hardware.tflops.get(rate), "TOP/s" if rate == "int8" else "TFLOP/s"))
    for quantity, value, figure, unit in rows:
        datasheet = (f"{figure.value:g} {unit}", f"{value / figure.value:.1%}") if figure else ("", "")
        table.add_row(quantity, f"{value:.0f} {unit}", *datasheet)
    table.add_row("kernel after kernel", f"{found.launch_s * 1e6:.2f} us", "", "")
    tell_table(table)


def words(shape: Mapping[str, int]) -> str:
    """A shape on one line."""
    return safe(" ".join(f"{name}={size}" for name, size in shape.items()))
