"""Types that all records share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Profile = Literal["cpu", "gpu"]
DType = Literal[
    "float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int64", "int32", "int8", "uint8", "bool"
]
Rate = Literal["fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8", "fp4"]
"""Arithmetic for which a hardware file may give a dense peak, in TFLOP/s (TOP/s for int8)."""
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]*$", max_length=64)]
Shape = Annotated[Mapping[str, int], Field(min_length=1)]
"""Named sizes of one shape, such as `{B: 4, Hq: 8}`. Units are elements unless the problem says otherwise."""
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Record(BaseModel):
    """Base of all records. Frozen, no unknown keys; docstrings under fields become descriptions in the JSON Schema."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


Metric = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=32)]
Tolerance = Annotated[Mapping[Metric, Annotated[float, Field(ge=0, allow_inf_nan=False)]], Field(min_length=1)]
"""The largest error of each metric that the correctness check allows; 0 allows none. problems/kit/check.py defines `rel_fro`,
`row` and `el`; a problem may measure others in its reference.py."""


KIT_METRICS = ("rel_fro", "row", "el")
Errors = Mapping[Metric, float]
"""The worst error of each metric."""
Count = Annotated[int, Field(ge=1)]
