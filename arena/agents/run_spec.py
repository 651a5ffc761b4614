"""`RunSpec`: everything that is decided before a run. Made once, refused with all its faults at once, and never changed after."""

from __future__ import annotations

from dataclasses import dataclass

from arena import catalog
from arena.agents.launch import Launch
from arena.agents.select import SelectedModel
from arena.gateway.config import ModelAccess
from arena.gateway.network import Network
from arena.sandboxes import Sandbox
from arena.schema import Cell, Hardware, Problem, SweepPlace


@dataclass(frozen=True)
class TimeLimits:
    """The agent's budget and the timeouts around it, in seconds."""

    budget_s: float
    """The agent's wall clock."""
    grace_s: float = 10.0
    """From SIGTERM at the budget's end to SIGKILL. The submission was taken before."""
    linger_s: float = 20.0
    """From the agent's report that it is done to SIGKILL."""
    silence_s: float | None = None
    """End the session after this long without output or traffic, while no request is under way. None: no such limit."""
    unasked_s: float | None = None
    """End the session when nothing has reached the gateway after this long. None: no such limit."""
    without_backoff: bool = False
    """Whether the time for which the provider failed is added to the budget."""


@dataclass(frozen=True)
class RunSpec:
    """One run, resolved. `session.play`, the gateway and the manifest take it."""

    selected: SelectedModel
    """The harness and the model, with the effort and the providers that this run asks for."""
    launch: Launch
    """The agent's CLI, command, variables, files and limits, with everything filled in but the run's own key."""
    problem: Problem
    hardware: Hardware
    gpu: int
    """Index of the GPU, as CUDA counts; without meaning on hardware `cpu`."""
    times: TimeLimits
    sandbox_name: str
    sandbox: Sandbox
    network: Network
    """What the agent may reach besides its model. A submission never has a network."""
    access: ModelAccess | None
    """The route to the model, the real key and the caps, for the gateway. None without a model, and with a login."""
    login: bool = False
    """Whether the agent CLI uses a person's own subscription instead of the gateway."""
    sweep: SweepPlace | None = None
    """The sweep that the run belongs to, and which trial of its cell it is."""

    def cell(self) -> Cell:
        """The run's identity in the record."""
        model, harness = self.selected.model, self.selected.harness
        return Cell(
            problem=self.problem.name,
            problem_version=self.problem.version,
            problem_digest=catalog.problem_digest(self.problem.name),
            harness=harness.name,
            harness_digest=catalog.harness_digest(harness.name),
            model=self.selected.model_name,
            model_id=(model.id or self.selected.model_name) if model.route else None,
            route=model.route,
            provider=model.provider,
            effort=model.effort,
            turns=self.selected.turns,
            profile=self.selected.profile,
            hardware=self.hardware.name,
            budget_s=self.times.budget_s,
            without_backoff=self.times.without_backoff,
        )
