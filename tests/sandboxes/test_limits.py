"""Limits: from YAML and a harness to bytes on a machine, and through a session."""

import pytest

from arena import catalog, schema
from arena.errors import DataError, UsageError
from arena.sandboxes import MIB, Limits
from arena.sandboxes.limits import in_bytes, limits_for, machine_bytes

GIB = 1 << 30


def machine(given: schema.Limits, memory_bytes: int = 16 * GIB) -> Limits:
    return in_bytes(given, memory_bytes, cores=4, pids=32768)


@pytest.mark.parametrize("kind", ["agent", "worker"])
def test_the_shipped_defaults_hold_here(kind):
    found = limits_for(kind)
    assert found.memory_bytes is not None and MIB < found.memory_bytes <= 0.75 * machine_bytes()
    assert found.processes == {"agent": 2048, "worker": 512}[kind]
    assert (found.workspace_bytes is None) == (kind == "worker")


def test_mib_become_bytes_and_absent_limits_keep_defaults():
    found = machine(schema.Limits(tmp_mib=3, file_mib=5, open_files=7, workspace_mib=9, workspace_files=11, cpus=2))
    assert found == Limits(
        tmp_bytes=3 * MIB, file_bytes=5 * MIB, open_files=7, workspace_bytes=9 * MIB, workspace_files=11, cpus=2
    )


def test_memory_is_the_smaller_of_a_size_and_a_fraction():
    assert machine(schema.Limits(memory_fraction=0.5)).memory_bytes == 8 * GIB
    assert machine(schema.Limits(memory_fraction=0.5, memory_mib=1024)).memory_bytes == GIB
    assert machine(schema.Limits(memory_fraction=0.01, memory_mib=1024)).memory_bytes == int(0.01 * 16 * GIB)


def test_a_workspace_is_no_larger_than_the_memory():
    assert machine(schema.Limits(memory_fraction=0.5, workspace_mib=4096), GIB).workspace_bytes == GIB // 2


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (schema.Limits(memory_mib=16385), "limits.memory_mib: 16385 would limit nothing, this machine has 16384 MiB of memory"),
        (schema.Limits(cpus=4.5), "limits.cpus: 4.5 would limit nothing, this machine has 4 processors"),
        (schema.Limits(processes=40000), "limits.processes: 40000 would limit nothing, this machine has 32768 process ids"),
    ],
)
def test_a_limit_above_the_machines_is_an_error(given, text):
    with pytest.raises(UsageError, match=text):
        machine(given)


def test_a_harness_replaces_single_limits():
    defaults = schema.Limits(memory_fraction=0.75, processes=2048, tmp_mib=10)
    assert defaults.replaced(None) is defaults
    assert defaults.replaced(schema.Limits(processes=5)) == schema.Limits(memory_fraction=0.75, processes=5, tmp_mib=10)
    assert defaults.replaced(schema.Limits(memory_mib=5)) == schema.Limits(memory_mib=5, processes=2048, tmp_mib=10)
    assert limits_for("agent", schema.Limits(workspace_files=7)).workspace_files == 7


HARNESS = "schema_version: 1\ntitle: fake\ncommand: [sh]\nmodels: {m: {}}\n"


def test_a_harness_sets_limits_in_its_yaml(tmp_path):
    (tmp_path / "fake.yaml").write_text(HARNESS + "limits: {memory_mib: 64, cpus: 0.5}\n")
    assert catalog.harness("fake", tmp_path).limits == schema.Limits(memory_mib=64, cpus=0.5)


@pytest.mark.parametrize("line", ["memory_mib: 0", "memory_fraction: 1.5", "processes: many", "memory_mb: 5"])
def test_a_wrong_limit_of_a_harness_is_an_error_with_its_place(line, tmp_path):
    (tmp_path / "fake.yaml").write_text(HARNESS + f"limits: {{{line}}}\n")
    with pytest.raises(DataError, match=rf"fake.yaml:5:\d+: .*{line.split(':')[0]}"):
        catalog.harness("fake", tmp_path)
