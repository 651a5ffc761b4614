"""`arena/hardware/<name>.yaml`: the peak rates of a device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import model_validator

from arena.schema.common import Name, Positive, Profile, Rate, Record


class Figure(Record):
    """A number that people may dispute, and its source."""

    value: Positive
    source: str
    """A key of the file's `sources`."""


class Hardware(Record):
    """`arena/hardware/<name>.yaml`: dense peaks from the vendor. No sandbox mounts it."""

    schema_version: Literal[1]
    name: Name
    """The file's stem; not written in the file."""
    title: str
    profile: Profile
    device_names: tuple[str, ...] = ()
    """Exact names under which torch and NVML report this device."""
    unmeasured: bool = False
    """True where no score was taken on this device yet: every figure comes from documents and from others' prints."""
    compute_capability: str | None = None
    memory_gb: Figure | None = None
    """Memory that CUDA offers on the device in GB (1e9): some per cent less than its name says, most where ECC takes a part."""
    bandwidth_gb_s: Figure | None = None
    """DRAM bandwidth in GB/s (1e9). None: arena measures it on the machine."""
    l2_mb: Figure | None = None
    """Last cache before DRAM in MB (1e6)."""
    tflops: Mapping[Rate, Figure] = {}
    """Dense peak per arithmetic in TFLOP/s (1e12): the highest rate at which the chip multiplies numbers of that type, whatever
    it adds up in, since no correct kernel may exceed a ceiling. The chip lacks an arithmetic that is not listed. Empty: arena
    measures them on the machine."""
    sources: Mapping[str, str] = {}
    """Key -> title and address of the document, and what it states."""
    notes: str = ""

    @model_validator(mode="after")
    def _sources_exist(self) -> Hardware:
        figures = {"memory_gb": self.memory_gb, "bandwidth_gb_s": self.bandwidth_gb_s, "l2_mb": self.l2_mb}
        figures |= {f"tflops.{k}": v for k, v in self.tflops.items()}
        for key, figure in figures.items():
            if figure is not None and figure.source not in self.sources:
                raise ValueError(
                    f"{key}: source {figure.source!r} is not under `sources` (there: {', '.join(self.sources) or 'none'})"
                )
        if self.profile == "gpu" and (self.bandwidth_gb_s is None or not self.tflops or not self.device_names):
            raise ValueError("a GPU needs bandwidth_gb_s, tflops and device_names")
        return self
