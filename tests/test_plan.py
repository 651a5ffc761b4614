"""The plan of a run: everything resolved once, and every fault reported at once."""

import dataclasses
import json
from typing import Any

import pytest
from command import needs_sandbox

from arena import catalog
from arena.agents.install import packages
from arena.errors import ArenaError, UsageError
from arena.gateway.config import Caps
from arena.gateway.network import Network
from arena.plan import DEFAULT_USD, plan, seconds, unscorable


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("ARENA_HOME", str(tmp_path))
    monkeypatch.setenv("ARENA_CLI", str(tmp_path / "cli"))
    monkeypatch.setenv("ARENA_KEYS", str(tmp_path / "keys"))
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)


@needs_sandbox
def test_plan_resolves_a_built_in_model():
    spec = plan("paged_attention", hardware="cpu", budget="90s")
    assert (spec.problem.name, spec.hardware.name, spec.times.budget_s) == ("paged_attention", "cpu", 90.0)
    assert (spec.access, spec.launch.cli, spec.network) == (None, None, Network())
    assert b"solution.py" in spec.launch.files["/run/arena/tape.json"]
    assert spec.times.silence_s is None, "a built-in model may be silent"
    assert spec.cell().problem_digest


@needs_sandbox
def test_plan_is_frozen():
    spec = plan("paged_attention", hardware="cpu")
    with pytest.raises(dataclasses.FrozenInstanceError):
        spec.gpu = 1  # type: ignore[misc]


def test_plan_reports_every_fault_at_once():
    with pytest.raises(UsageError) as refused:
        plan("paged_atention", "claude-opus-4-7", hardware="h2000", budget="soon", sandbox="vm", patience="-1")
    text = str(refused.value)
    assert text.startswith("5 faults:\n1. ")
    for words in ("'paged_atention': did you mean", "'h2000'", "--budget 'soon'", "--patience '-1'", "unknown sandbox 'vm'"):
        assert words in text


def test_plan_reports_a_missing_cli_and_key_together():
    with pytest.raises(UsageError) as refused:
        plan("paged_atention", "claude-opus-4-7", hardware="cpu")
    text = str(refused.value)
    assert "paged_attention" in text
    assert "Claude Code is not installed in" in text and "`arena install claude`" in text
    assert "ANTHROPIC_API_KEY" in text


@pytest.fixture
def clis(tmp_path, monkeypatch):
    """Folders that look as if the agent CLIs were installed, and keys."""
    for harness in catalog.harnesses().values():
        for package in packages(harness.cli) if harness.cli else ():
            folder = tmp_path / "cli" / harness.name / "node_modules" / package.name
            folder.mkdir(parents=True)
            (folder / "package.json").write_text(json.dumps({"version": package.version}))
        if harness.cli:
            (tmp_path / "cli" / harness.name / "node_modules" / ".bin").mkdir(parents=True)
            (tmp_path / "cli" / harness.name / "node_modules" / ".bin" / harness.cli.program).touch()
    for name in ("ANTHROPIC_API_KEY", "OPENROUTER_API_KEY", "MOONSHOT_API_KEY"):
        monkeypatch.setenv(name, "a-key-of-this-test")


@needs_sandbox
@pytest.mark.parametrize(
    ("model", "caps", "usd"),
    [
        ("claude-opus-4-7", Caps(), DEFAULT_USD),
        ("claude-opus-4-7", Caps(requests=10), DEFAULT_USD),
        ("claude-opus-4-7", Caps(cost_usd=500.0), 500.0),
        ("claude-opus-4-7", Caps(tokens=10**6), None),  # the user's choice
        ("claude/anthropic/claude-unheard-of", Caps(), None),  # no price
        ("glm-5.3", Caps(), DEFAULT_USD),
        ("kimi-k2.6-moonshot", Caps(), None),  # a chat program need not ask for the numbers
    ],
)
def test_a_known_price_brings_a_default_cap(clis, model, caps, usd):
    effort = "high" if "unheard" in model else None
    access = plan("paged_attention", model, hardware="cpu", caps=caps, effort=effort).access
    assert access is not None
    assert (access.caps.cost_usd, access.caps.requests, access.caps.tokens) == (usd, caps.requests, caps.tokens)


def test_plan_refuses_what_the_gpu_has_no_arithmetic_for():
    pytest.importorskip("torch")
    with pytest.raises(UsageError) as refused:
        plan("fp8_gemm", hardware="a100-80gb-sxm", budget="soon")
    first, lacking, budget = str(refused.value).splitlines()
    assert first == "2 faults:"
    assert lacking == (
        "1. NVIDIA A100 SXM4 80 GB has no fp8 arithmetic, whose peak bounds fp8_gemm "
        "(it has fp64, fp32, tf32, fp16, bf16, int8): choose another problem or other hardware"
    )
    assert "--budget 'soon'" in budget


@pytest.mark.parametrize("hardware", [name for name, entry in catalog.hardwares().items() if entry.profile == "gpu"])
def test_every_gpu_but_the_a100_takes_every_problem(hardware):
    pytest.importorskip("torch")
    reasons = {name: unscorable(problem, catalog.hardware(hardware)) for name, problem in catalog.problems().items()}
    lacking = ["fp8_gemm"] if hardware == "a100-80gb-sxm" else []
    assert [name for name, reason in reasons.items() if reason] == lacking


def test_plan_reports_one_fault_as_it_is():
    with pytest.raises(UsageError, match=r"^harness builtin takes no effort"):
        plan("paged_attention", hardware="cpu", effort="high")


@pytest.mark.parametrize("given", [{"caps": Caps(requests=3)}, {"patience": 9.0}, {"exclude_backoff": True}])
def test_logins_refuse_options_of_the_gateway(given):
    with pytest.raises(UsageError, match="with --login nothing is metered"):
        plan("paged_attention", "claude-opus-4-7", hardware="cpu", login=True, **given)


def test_logins_of_harnesses_without_one_are_refused():
    with pytest.raises(UsageError, match="harness builtin has no login"):
        plan("paged_attention", hardware="cpu", login=True)


def test_unwritable_homes_are_refused(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ARENA_HOME", str(tmp_path / "file"))
    with pytest.raises(ArenaError, match="cannot be written"):
        plan("paged_attention", hardware="cpu")


@pytest.mark.parametrize(("duration", "found"), [("45m", 2700.0), ("90s", 90.0), ("1.5h", 5400.0), (30, 30.0), (2.5, 2.5)])
def test_durations_are_read(duration, found):
    assert seconds(duration, "--budget") == found


def test_a_number_without_a_unit_is_refused_with_both_readings():
    with pytest.raises(UsageError, match="--budget '45': give its unit, 45m for minutes or 45s for seconds"):
        seconds("45", "--budget")


@pytest.mark.parametrize("duration", ["0", "0.0m", "ten", "5 d", "", "-3s", "1e9"])
def test_other_durations_name_their_option(duration):
    with pytest.raises(UsageError, match=f"--budget '{duration}': give a time above zero"):
        seconds(duration, "--budget")


def test_unknown_options_are_refused_with_the_known_ones():
    options: Any = {"bugdet": "5m", "max_cost": 1.0}
    with pytest.raises(UsageError) as refused:
        plan("paged_attention", hardware="cpu", **options)
    assert "unknown option 'bugdet': did you mean 'budget'?" in str(refused.value)
    assert "unknown option 'max_cost'" in str(refused.value)
