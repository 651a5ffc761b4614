"""`arena export dataset`: rows of equal columns, the choice of runs, the same bytes, and keys that no file holds."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from exports import files, known, session
from records import trial
from sites import home
from test_site_hostile import hostile, rejected

from arena.errors import UsageError
from arena.export import dataset, keys
from arena.export.keys import KeyFoundError
from arena.schema import Annotation
from arena.site import results

KEY = 'sk-"a\\b' + "k" * 16
"""With the two characters that JSON writes otherwise."""


def read(made: Path, shown: results.Shown = "all", *, source: bool = True) -> results.Results:
    folders = {name: made / name for name in ("annotations", "baselines", "curves", "workspaces")}
    return results.read(folders, shown=shown, source=source)


def rows(path: Path) -> list[dict[str, Any]]:
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    assert data.isascii()
    return [json.loads(line) for line in data.decode().split("\n")[:-1]]


def reviewed(run: Annotation) -> Annotation:
    return run.model_copy(update={"review": trial(0.1, 1, review="clean").review})


def filled(folder: Path) -> Path:
    runs = [reviewed(known(1)), known(2), trial("incorrect", 3), trial("missing", 4, status="provider_error")]
    made = home(folder, runs)
    for run in runs[:2]:
        files(made, run, session())
    return made


def test_every_run_has_its_rows(tmp_path: Path):
    found = dataset.build(read(filled(tmp_path / "home")), tmp_path / "out")
    assert [name for name in found if "/" not in name] == ["README.md", "shapes.jsonl", "solutions.jsonl", "trials.jsonl"]
    assert sum(name.startswith("trajectories/") for name in found) == 2
    trials = rows(tmp_path / "out/trials.jsonl")
    assert [row["outcome"] for row in trials] == ["passed", "passed", "incorrect", "provider_error"]
    assert [row["peak_fraction"] for row in trials] == [0.4, 0.4, None, None]
    assert len({tuple(row) for row in trials}) == 1, "every row has the same columns"
    assert [json.loads(row["shape"]) for row in rows(tmp_path / "out/shapes.jsonl")] == [{"N": 8}, {"N": 1}] * 2
    sources = rows(tmp_path / "out/solutions.jsonl")
    assert [row["sha256"] for row in sources] == [trials[0]["submission_sha256"]] * 2
    steps = rows(tmp_path / f"out/trajectories/{trials[0]['run_id']}.jsonl.gz")
    assert len(steps) == len(session()) and len({tuple(row) for row in steps}) == 1
    assert json.loads(steps[3]["input"]) == {"command": "ls"}


def test_the_card_names_what_is_there(tmp_path: Path):
    dataset.build(read(filled(tmp_path / "home")), tmp_path / "out")
    head = (tmp_path / "out/README.md").read_text().split("---\n")[1]
    card = yaml.safe_load(head)
    assert card["license"] == "unknown"
    for config in card["configs"]:
        assert list((tmp_path / "out").glob(config["data_files"])), config
    assert [config["config_name"] for config in card["configs"]] == ["trials", "shapes", "solutions", "trajectories"]
    made = home(tmp_path / "bare", [trial("incorrect", 1)])
    dataset.build(read(made), tmp_path / "few")
    card = yaml.safe_load((tmp_path / "few/README.md").read_text().split("---\n")[1])
    assert [config["config_name"] for config in card["configs"]] == ["trials"], "the Hub refuses a config without rows"


@pytest.mark.parametrize(("shown", "count"), [("all", 2), ("public", 1), ("none", 0)])
def test_transcripts_are_of_the_chosen_runs(shown: results.Shown, count: int, tmp_path: Path):
    found = dataset.build(read(filled(tmp_path / "home"), shown), tmp_path / "out")
    assert sum(name.startswith("trajectories/") for name in found) == count
    assert len(rows(tmp_path / "out/solutions.jsonl")) == count
    assert len(rows(tmp_path / "out/trials.jsonl")) == 4


def test_no_source_leaves_solutions_out(tmp_path: Path):
    dataset.build(read(filled(tmp_path / "home"), source=False), tmp_path / "out")
    assert rows(tmp_path / "out/solutions.jsonl") == []


def test_the_same_records_give_the_same_bytes(tmp_path: Path):
    made = filled(tmp_path / "home")
    for name in ("a", "b"):
        dataset.build(read(made), tmp_path / name)
    kept = [{str(p.relative_to(tmp_path / n)): p.read_bytes() for p in sorted((tmp_path / n).rglob("*.*"))} for n in ("a", "b")]
    assert kept[0] == kept[1] and len(kept[0]) == 6


def test_another_folder_is_not_written_into(tmp_path: Path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").touch()
    with pytest.raises(UsageError, match="is not empty"):
        dataset.build(read(filled(tmp_path / "home")), tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine"]


FIELDS = ("message", "model", "effort", "route text", "step", "nested", "source", "summary", "rejected")


def planted(folder: Path, where: str, key: str) -> Path:
    """A home with the key in one place that an agent, a provider or a reviewer fills."""
    good, made_of = known(1), lambda: known(2).model_dump(mode="json")
    changed, steps, source = made_of(), session(), "x = 1\n"
    if where == "message":
        changed["score"]["message"] = key
    elif where == "model":
        changed["cell"]["model_id"] = key
    elif where == "effort":
        changed["cell"]["effort"] = key
    elif where == "route text":
        changed["cell"]["provider"] = [key]
    elif where == "step":
        steps = session(key)
    elif where == "nested":
        steps = [{"at_s": 0, "kind": "call", "id": "1", "tool": "t", "input": {"a": [{key: 1}]}}]
    elif where == "source":
        source = f"# {key}\n"
    elif where == "summary":
        changed["review"] = {"verdict": "clean", "summary": key, "reviewed_at": "2026-01-02T03:04:05Z"}
    run = rejected(2, key) if where == "rejected" else Annotation.model_validate(changed)
    if where == "source":
        from exports import submitted

        run = submitted(run, source)
    made = home(folder, [good, run])
    files(made, run, steps, source if where == "source" else session.__doc__ or "x")
    return made


def words(value: Any) -> str:
    """Every text in a row, and in the JSON within it."""
    if isinstance(value, dict):
        return "\n".join(f"{words(name)}\n{words(each)}" for name, each in value.items())
    if isinstance(value, list):
        return "\n".join(map(words, value))
    return words(json.loads(value)) if isinstance(value, str) and value[:1] in ("{", "[") else str(value)


@pytest.mark.parametrize("where", FIELDS)
@pytest.mark.parametrize("key", ["sk-" + "k" * 20, KEY], ids=["plain", "with signs"])
def test_no_file_holds_a_key(where: str, key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    made = planted(tmp_path / "home", where, key)
    dataset.build(read(made), tmp_path / "honest")
    kept = [words(row) for path in (tmp_path / "honest").rglob("*.jsonl*") for row in rows(path)]
    assert any(key in text for text in kept), "without the variable it is no key, and stands there"
    monkeypatch.setenv("OPENAI_API_KEY", key)
    with pytest.raises(KeyFoundError) as refused:
        dataset.build(read(made), tmp_path / "out")
    assert key not in str(refused.value) and "run " in str(refused.value)
    assert not (tmp_path / "out").exists()


def test_short_words_are_no_keys(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_API_KEY", "the")
    assert "the" not in keys.known()


def test_hostile_records_stay_data(tmp_path: Path):
    text = 'x\n{"run_id": "forged"}\u2028\x00\x1b[2J\u202e---\nlicense: mit'
    made = home(tmp_path / "home", [hostile(1, text), rejected(2, text)])
    dataset.build(read(made), tmp_path / "out")
    assert len(rows(tmp_path / "out/trials.jsonl")) == 2
    assert "license: mit" not in (tmp_path / "out/README.md").read_text()


def test_the_command_says_what_it_wrote(shared, tmp_path: Path):
    made = filled(tmp_path / "home")
    env = {"ARENA_HOME": str(made)}
    done = shared("export", "dataset", "--out", str(tmp_path / "out"), "--runs", "all", "--json", env=env)
    assert done.code == 0, done.err
    assert "trials.jsonl" in json.loads(done.out)["files"]
    key = "first_words_of_a_key"
    (made / "workspaces" / known(2).run_id / "trajectory.jsonl").write_text(json.dumps({"kind": "end", "ok": True, "text": key}))
    env |= {"OPENAI_API_KEY": key}
    done = shared("export", "dataset", "--out", str(tmp_path / "two"), "--runs", "all", env=env)
    assert done.code == 1 and key not in done.err and known(2).run_id in done.err.replace("\n", "")
    assert not (tmp_path / "two").exists()
