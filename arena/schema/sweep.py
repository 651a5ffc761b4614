"""`sweep.yaml`: a grid of cells, how often each is tried, and what it may use of the machine and the providers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from arena.schema.common import Count, Name, Positive, Record
from arena.schema.run import GpuAccess

Duration = Annotated[str, Field(pattern=r"^\d+(\.\d+)?[smh]$")]
"""Such as 45m, 90s or 1.5h."""
Gpu = Annotated[int, Field(ge=0)]
Retries = Annotated[int, Field(ge=0)]


class ModelChoice(Record):
    """A model with options of its own."""

    model: str
    """As `arena run --model` takes it."""
    effort: str | None = None
    turns: Count | None = None
    """With a harness that asks its model itself: answers, at most."""
    profile: bool = False
    """With such a harness: show the model a profile of each kernel that passed its check."""
    provider: tuple[str, ...] = ()
    """On a route that is a broker: the providers that may answer, in order of preference."""
    unpinned: bool = False
    """On such a route, let the broker choose."""


class Grid(Record):
    """Every model on every problem, with the same options."""

    models: tuple[str | ModelChoice, ...] = Field(min_length=1)
    problems: Literal["all"] | tuple[str, ...]
    """Names, or `all` that the hardware allows a score of."""
    budget: Duration = "45m"
    effort: str | None = None
    """Asked of each model that does not name its own here."""
    exclude_backoff: bool = False
    allow: tuple[str, ...] = ()
    """Hosts that the agents may reach besides their models. Empty: none."""
    allow_private: bool = False
    """Whether such hosts may have private addresses."""
    network: Literal["none", "allow", "open"] | None = None
    """None: `allow` with hosts to allow, `none` without. open: this machine's network, for one session at once; the runs are
    marked as unsealed."""
    login: bool = False
    """Copy the subscription's login into the sandbox, and use no gateway: nothing is metered."""
    sandbox: Literal["bwrap", "docker"] = "bwrap"
    patience: Duration = "5m"
    max_requests: Count = 2000
    max_tokens: Count | None = None
    max_cost: Positive | None = None
    """USD that one session may use."""


class Place(Record):
    """What of the machine the sweep may use."""

    parallel: Literal["auto"] | Count = "auto"
    """Sessions at once. auto: one for each GPU of the agents, or six with leases; and what cores and memory allow."""
    gpus: Annotated[frozenset[Gpu], Field(min_length=1)] = frozenset({0})
    """All GPUs that the sweep uses, by their CUDA index."""
    judge: Literal["auto"] | frozenset[Gpu] = "auto"
    """Those of them that no agent ever opens: scores are taken there while agents work on the others. auto: one in five, and one
    where there are two GPUs or more. Empty, and with one GPU: scores are taken when all sessions at work have ended."""
    access: GpuAccess = "exclusive"
    """exclusive: a session has a GPU to itself. leased: sessions share GPUs by turns. Part of the cell: the two never compare."""
    lease: Duration = "120s"
    """The longest turn."""


class Retry(Record):
    """Further attempts at one trial, by the kind of ending that does not count. Never by score."""

    provider_error: Retries = 3
    judge_failed: Retries = 2
    """Scores of the same session."""
    interrupted: Retries = 5
    """Of attempts that arena itself ended with an error, and as many that were lost with their machine. One that was killed
    with the sweep is always made again."""
    after: Duration = "1m"
    """Wait before the first attempt after a provider's failure; four times as long before each further one."""


WIDEST = 0.1


def _narrow(half_width: float) -> float:
    # 0.2, 0.25 and 0.3 stop after a few trials that are alike by luck: 95 % intervals then hold in 80, 76 and 73 % of cases.
    if half_width > WIDEST:
        raise ValueError(
            f"{half_width:g} is above {WIDEST:g}: a wider bound stops where trials are alike by luck, and biases the figures"
        )
    return half_width


class When(Record):
    """How sure a cell must be, that it needs no further trial."""

    half_width: Annotated[float, Field(gt=0, json_schema_extra={"maximum": WIDEST}), AfterValidator(_narrow)]
    """Half of the interval of its chance to pass (Wilson, 95 %), and the standard error of its gain over naive as a part of the
    gain, are both below this; after 3 trials at least. A cell without a naive kernel gets all its trials."""


class Stop(Record):
    """When to stop before all trials are done."""

    cost_usd: Positive | None = None
    """Start no session that could bring the cost above this."""
    at: Annotated[str, Field(pattern=r"^(\d{4}-\d{2}-\d{2}T)?\d{2}:\d{2}(:\d{2})?(Z|[+-]\d{2}:\d{2})?$")] | None = None
    """Start no session from then on: `2026-12-01T08:00Z`, or `08:00`, which is the next one of this machine's clock after the
    command began."""
    route_failures: Count = 3
    """Pause a route after so many sessions in a row that ended by its provider's failure."""
    when: When | None = None
    """Give a cell no further trial once its figures are this sure. `trials` is the most that it gets."""
    pause: Duration = "10m"
    """Length of that pause; then one session tries the route."""


class Sweep(Record):
    """`sweep.yaml`."""

    schema_version: Literal[1] = 1
    name: Name
    """The folder below sweeps/, and the name in every run's manifest."""
    trials: Count = 1
    """Of each cell."""
    cells: tuple[Grid, ...] = Field(min_length=1)
    hardware: Name | None = None
    """None: the GPU that is here, or `cpu`."""
    place: Place = Place()
    providers: Mapping[Name, Count] = {}
    """Sessions at once by route; 4 on a route that is not named."""
    retry: Retry = Retry()
    stop: Stop = Stop()


class SweepPlace(Record):
    """A run's place in a sweep, in its manifest."""

    name: Name
    trial: Count
    attempt: Count
