"""All records that arena reads from or writes to files. Frozen; unknown keys are errors.

Catalogue records come from YAML that people write (problem, hardware, limits, harness). Arena writes the run records
(session, score, baselines, annotation). `peak_fraction` exists on scores and nowhere else.
"""

from arena.schema.common import KIT_METRICS, Count, DType, Errors, Metric, Name, Positive, Profile, Rate, Record, Shape, Tolerance
from arena.schema.curve import Curve, CurvePoint
from arena.schema.hardware import Figure, Hardware
from arena.schema.harness import (
    AccountFault,
    AccountFaults,
    Allow,
    Api,
    Cli,
    DefaultLimits,
    Download,
    Harness,
    Limits,
    Login,
    Model,
    OwnModels,
    Route,
    Routes,
)
from arena.schema.problem import CountedWork, Problem, RuleSets, Tensor, VendorLibrary, Work
from arena.schema.run import (
    AgentStatus,
    Annotation,
    Cell,
    EndedSession,
    GpuAccess,
    Network,
    Quote,
    Review,
    Session,
    SubmissionRecord,
    Usage,
)
from arena.schema.score import (
    SCORE,
    Attainable,
    BaselineLine,
    Baselines,
    BaselineShape,
    Device,
    Evidence,
    JudgeFailed,
    Kernel,
    LaunchMode,
    Passed,
    Rejected,
    RejectionVerdict,
    Score,
    ScoreHead,
    ShapeScore,
    Similar,
    TimedShape,
    Timings,
    Verdict,
)
from arena.schema.sweep import Grid, ModelChoice, Place, Retry, Stop, Sweep, SweepPlace, When

__all__ = [
    "KIT_METRICS", "SCORE", "AccountFault", "AccountFaults", "AgentStatus", "Allow", "Annotation", "Api", "Attainable",
    "BaselineLine", "BaselineShape", "Baselines", "Cell", "Cli", "Count", "CountedWork", "Curve", "CurvePoint", "DType",
    "DefaultLimits", "Device", "Download", "EndedSession", "Errors", "Evidence", "Figure", "GpuAccess", "Grid",
    "Hardware", "Harness", "JudgeFailed", "Kernel", "LaunchMode", "Limits", "Login", "Metric", "Model", "ModelChoice",
    "Name", "Network", "OwnModels", "Passed", "Place", "Positive", "Problem", "Profile", "Quote", "Rate", "Record",
    "Rejected", "RejectionVerdict", "Retry", "Review", "Route", "Routes", "RuleSets", "Score", "ScoreHead", "Session",
    "Shape", "ShapeScore", "Similar", "Stop", "SubmissionRecord", "Sweep", "SweepPlace", "Tensor", "TimedShape",
    "Timings", "Tolerance", "Usage", "VendorLibrary", "Verdict", "When", "Work",
]  # fmt: skip
