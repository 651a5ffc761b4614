"""Records of schema version 1: their keys and words become those of version 2; all other data stays unchanged."""

import pytest

from arena.schema import version_1

SHAPE = {"shape": {"N": 8}, "mode": "wall"}
UPGRADED_SHAPE = {"shape": {"N": 8}, "launch_mode": "call"}


@pytest.mark.parametrize(
    ("upgrade", "old", "new"),
    [
        (version_1.problem, {"gate": "{el}"}, {"correctness": "{el}"}),
        (
            version_1.score,
            {"verdict": "passed", "shapes": [SHAPE], "latency": [{"mode": "graph"}], "timings": {"audit_s": 1.0}},
            {
                "verdict": "passed",
                "shapes": [UPGRADED_SHAPE],
                "latency": [{"launch_mode": "graph"}],
                "timings": {"evidence_s": 1.0},
            },
        ),
        (version_1.score, {"verdict": "incorrect", "mode": "large"}, {"verdict": "incorrect", "input_class": "large"}),
        (version_1.score, {"verdict": "judge_failed", "shape": None, "mode": None, "error": None}, {"verdict": "judge_failed"}),
        (
            version_1.baselines,
            {"lines": [{"name": "eager", "shapes": [SHAPE]}]},
            {"lines": [{"name": "eager", "shapes": [UPGRADED_SHAPE]}]},
        ),
        (version_1.annotation, {"run_id": "x"}, {"run_id": "x"}),
    ],
)
def test_version_1_is_upgraded(upgrade, old, new):
    assert upgrade({"schema_version": 1} | old) == {"schema_version": 2} | new
    for unchanged in ({"schema_version": 2} | old, {"schema_version": 3} | old, old, [old], None):
        assert upgrade(unchanged) is unchanged


@pytest.mark.parametrize("upgrade", [version_1.score, version_1.baselines])
def test_malformed_shapes_are_left_to_validation(upgrade):
    broken = {"schema_version": 1, "shapes": [3], "lines": [3]}
    assert upgrade(broken)["shapes"] == [3]
