"""Looking things up by name, and what a wrong name or a broken file says."""

import re
import shutil
from pathlib import Path

import pytest
import yaml
from command import ROOT

from arena import catalog, paths
from arena.agents.select import find_model
from arena.errors import DataError, UsageError
from arena.gateway.model.usage import list_price
from arena.gateway.routes import routes
from arena.schema import Harness, OwnModels

PROBLEM = """\
schema_version: 1
version: 1
title: Add
operator: z = x + y
inputs: [{name: x, shape: [N], dtype: float32}, {name: y, shape: [N], dtype: float32}]
outputs: [{name: z, shape: [N], dtype: float32}]
shapes: {cpu: [{N: 1024}], gpu: [{N: 1048576}]}
tolerance: {rel_fro: 1e-6, row: 1e-6, el: 1e-6}
work: {flops: N, bytes: 12*N}
distribution: standard normal
"""
HARNESS = """\
schema_version: 1
title: Test
command: [sh, -c, "true"]
models:
"""


@pytest.fixture
def problems(tmp_path) -> Path:
    """Two good problems and the kit."""
    for name in ("add", "add_scaled"):
        (tmp_path / name / "solutions").mkdir(parents=True)
        (tmp_path / name / "problem.yaml").write_text(PROBLEM)
        (tmp_path / name / "reference.py").write_text("x = 1\n")
        (tmp_path / name / "solutions" / "oracle.py").write_text("x = 2\n")
    (tmp_path / "kit").mkdir()
    (tmp_path / "kit" / "check.py").write_text("x = 3\n")
    return tmp_path


@pytest.fixture
def harnesses(tmp_path) -> Path:
    """Two harnesses that share one model name."""
    (tmp_path / "one.yaml").write_text(HARNESS + "  small: {}\n  shared: {}\n  'cheat/*': {plays: 'cheat_{name}.py'}\n")
    (tmp_path / "two.yaml").write_text(HARNESS + "  large: {effort: high}\n  shared: {}\n  vendor/large-2: {}\n")
    return tmp_path


@pytest.mark.parametrize("name", sorted(path.parent.name for path in paths.problems().glob("*/problem.yaml")))
def test_shipped_problem_is_valid(name):
    problem = catalog.problem(name)
    assert problem.name == name
    assert set(problem.shapes) == {"cpu", "gpu"}
    assert len(catalog.problem_digest(name)) == 64


@pytest.mark.parametrize("name", sorted(path.stem for path in paths.harnesses().glob("*.yaml")))
def test_shipped_harness_is_valid(name):
    harness = catalog.harness(name)
    assert harness.name == name
    assert len(catalog.harness_digest(name)) == 64
    for model in harness.models:
        assert find_model(f"{name}/{model.replace('*', 'x')}").harness == harness


def test_unknown_names_list_the_choices(problems, harnesses):
    with pytest.raises(UsageError) as caught:
        catalog.problem("ad_scaled", problems)
    assert str(caught.value) == "unknown problem 'ad_scaled': did you mean 'add_scaled'? (known: add_scaled, add)"
    for name in ("../add", "kit", "", "add/../add"):
        with pytest.raises(UsageError, match="unknown problem"):
            catalog.problem(name, problems)
    with pytest.raises(UsageError, match=r"unknown harness 'on': did you mean 'one'\? \(known: one, two\)"):
        catalog.harness("on", harnesses)
    with pytest.raises(UsageError, match=r"unknown hardware 'h2': did you mean 'h20' or 'h200'\?"):
        catalog.hardware("h2")
    with pytest.raises(UsageError, match=r"unknown model 'smal': did you mean 'small'\? \(known: small, .*cheat/\*"):
        find_model("smal", harnesses)


def test_broken_problem_stops_only_its_own_users(problems):
    (problems / "bad").mkdir()
    (problems / "bad" / "problem.yaml").write_text("title: [")
    (problems / "worse").mkdir()
    (problems / "worse" / "problem.yaml").write_text(PROBLEM.replace("version: 1\ntitle", "version: 0\ntitle"))
    assert catalog.problem("add", problems).title == "Add"
    with pytest.raises(DataError, match=r"bad/problem\.yaml:\d+:\d+: "):
        catalog.problem("bad", problems)
    with pytest.raises(DataError) as caught:
        catalog.problems(problems)
    first, second = str(caught.value).splitlines()
    assert "bad/problem.yaml:" in first
    assert second.endswith("worse/problem.yaml:2:10: version: should be greater than or equal to 1 (got 0)")


def test_models_are_found_by_name_family_and_harness(harnesses):
    large = find_model("large", harnesses)
    assert (large.harness.name, large.model_name, large.model.effort, large.argument) == ("two", "large", "high", "")
    cheat = find_model("cheat/patch_timer", harnesses)
    assert (cheat.harness.name, cheat.model_name, cheat.argument) == ("one", "cheat/patch_timer", "patch_timer")
    assert cheat.model.plays == "cheat_{name}.py"
    assert find_model("vendor/large-2", harnesses).harness.name == "two"
    for spec in ("one/shared", "two/shared", "one/cheat/x", "two/vendor/large-2"):
        owner, _, model_name = spec.partition("/")
        chosen = find_model(spec, harnesses)
        assert (chosen.harness.name, chosen.model_name) == (owner, model_name)


@pytest.mark.parametrize("spec", ["cheat/../../etc", "cheat/a/b", "cheat/.hidden", "cheat/a b"])
def test_family_takes_names_only(harnesses, spec):
    with pytest.raises(UsageError, match="is not a name"):
        find_model(spec, harnesses)


@pytest.mark.parametrize("spec", ["cheat/*", "cheat/", "cheat", "one", "one/", "two/small", "three/small"])
def test_non_models_are_rejected(harnesses, spec):
    with pytest.raises(UsageError, match="unknown model"):
        find_model(spec, harnesses)


def test_model_of_two_harnesses_needs_its_harness(harnesses):
    with pytest.raises(UsageError, match="'shared' is in several harnesses: write one/shared or two/shared"):
        find_model("shared", harnesses)


OWN = """\
schema_version: 1
models:
  codex:
    mine: {id: vendor/mine, route: openai, effort: low}
    gpt-5.5: {route: openai, effort: low}
"""


def test_own_models_join_those_of_a_harness(tmp_path, monkeypatch):
    monkeypatch.setenv("ARENA_MODELS", str(tmp_path / "models.yaml"))
    with pytest.raises(DataError, match=r"models\.yaml"):
        catalog.harness("codex")
    (tmp_path / "models.yaml").write_text(OWN)
    assert (find_model("mine").model.id, find_model("mine").harness.name) == ("vendor/mine", "codex")
    assert find_model("gpt-5.5").model.effort == "low"
    assert "gpt-6-sol" in catalog.harness("codex").models
    assert "mine" not in catalog.harness("claude").models
    (tmp_path / "models.yaml").write_text(OWN.replace("codex:", "codx:"))
    with pytest.raises(DataError, match=r"models\.yaml: models\.codx: unknown harness 'codx': did you mean 'codex'"):
        catalog.harness("codex")


def test_shipped_models_are_in_the_price_list_of_their_route():
    for harness in catalog.harnesses().values():
        for name, model in harness.models.items():
            if model.route:
                assert list_price(routes()[model.route].prices, model.id or name), name


def test_the_page_for_strangers_has_a_valid_harness():
    page = (ROOT / "docs" / "bring_your_own_agent.md").read_text()
    harness, own = (yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL))
    assert Harness.model_validate(harness | {"name": "pi"}).models["pi-local"].route in routes()
    assert OwnModels.model_validate(own).models["pi"]["pi-grok"].route in routes()


def test_broken_harness_is_named_for_missing_models(harnesses):
    (harnesses / "two.yaml").write_text("title: [")
    assert find_model("small", harnesses).harness.name == "one"
    with pytest.raises(UsageError, match=r"unknown model 'large'(.|\n)*not searched, because it is broken: .*two\.yaml:"):
        find_model("large", harnesses)


def test_harness_needs_the_files_it_mounts(harnesses):
    (harnesses / "three.yaml").write_text(HARNESS + "  m: {}\nfiles: {/opt/run.py: run.py}\n")
    with pytest.raises(DataError, match=r"three\.yaml: files\./opt/run\.py: there is no file 'run\.py' beside it"):
        catalog.harness("three", harnesses)
    (harnesses / "run.py").write_text("1")
    before = catalog.harness_digest("three", harnesses)
    (harnesses / "run.py").write_text("2")
    assert catalog.harness_digest("three", harnesses) != before


def test_hardware_is_found_by_device_name():
    assert catalog.hardware_of("NVIDIA H100 80GB HBM3").name == "h100-sxm"
    with pytest.raises(
        UsageError, match=r"no hardware file lists the device 'NVIDIA H100': .*, or choose --hardware cpu \(known: .*NVIDIA H200"
    ):
        catalog.hardware_of("NVIDIA H100")


def test_digest_covers_the_task_and_the_judging(problems):
    first = catalog.problem_digest("add", problems)
    for unseen in ("add/solutions/oracle.py", "add/__pycache__/reference.pyc", "add_scaled/reference.py"):
        (problems / unseen).parent.mkdir(exist_ok=True)
        (problems / unseen).write_text("changed")
        assert catalog.problem_digest("add", problems) == first, unseen
    seen = {first}
    for changed in ("add/problem.yaml", "add/hidden.py", "add/reference.py", "kit/check.py"):
        with (problems / changed).open("a") as file:
            file.write("# changed\n")
        seen.add(catalog.problem_digest("add", problems))
    (problems / "add" / "reference.py").rename(problems / "add" / "renamed.py")
    seen.add(catalog.problem_digest("add", problems))
    assert len(seen) == 6
    moved = shutil.copytree(problems, problems.parent / "moved")
    assert catalog.problem_digest("add", moved) in seen
