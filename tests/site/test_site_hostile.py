"""Hostile text in every field that an agent, a submission, a provider or a reviewer fills: no page has an element of it."""

from pathlib import Path
from typing import Any

import pytest
from pages import Page
from payloads import PAYLOADS
from sites import EVIDENCE, baseline, home, passed, render, run_files, steps

from arena.schema import Annotation


def hostile(number: int, text: str) -> Annotation:
    """A run with the text in each field of its record that is not arena's own word."""
    text = text.encode(errors="replace").decode()  # records hold no lone surrogates; a trajectory may
    made = passed(number, model=f"m{number}/{text}"[:200]).model_dump(mode="json")
    made["run_id"] = f"run-{number:02d}"
    evidence = EVIDENCE | {"kernels": [{"name": text, "launches": 1}], "note": text, "tensor_ops": {text: 1.0}}
    review = {"file": text, "lines": (1, 2), "text": text, "label": text}
    written = {"verdict": "clean", "summary": text, "implication": text, "reviewer": text, "quotes": [review]}
    made["review"] = written | {"reviewed_at": "2026-01-02T03:04:05Z"}
    made["cell"] |= {"effort": text, "model_id": text, "provider": [text]}
    made["session"] |= {"message": text, "allowed": [text], "network": "allow", "limits": {text: text}}
    made["session"]["usage"] |= {"models": [text], "providers": [text], "efforts": [text]}
    made["score"] |= {"message": text, "evidence": [evidence], "similar": [{"source": text, "share": 0.5}]}
    made["score"] |= {"environment": {text: text}, "device": made["score"]["device"] | {"name": text, "driver": text}}
    made["score"]["shapes"][0] |= {"disturbed": [text]}
    return Annotation.model_validate(made)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    runs = [hostile(number, text) for number, text in enumerate(PAYLOADS)]
    made = home(folder / "home", runs, [baseline()])
    for run, text in zip(runs, PAYLOADS, strict=True):
        usable = text.encode(errors="replace").decode()
        run_files(made, run, steps(text), [f'X = """{usable}"""\n', f'X = """\n#include {usable}\n"""\n# {usable}\n{usable}'])
    render(made, folder / "site")
    return folder / "site"


def test_there_are_forty_payloads():
    assert len(set(PAYLOADS)) >= 40


def test_no_page_has_an_element_of_theirs(site: Path):
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 4 * len(PAYLOADS)
    assert {str(path.relative_to(site)): found for path in pages if (found := Page(path).faults())} == {}


@pytest.mark.parametrize("number", range(0, len(PAYLOADS), 9))
def test_the_words_are_still_there(site: Path, number):
    """The check above would pass for pages that show nothing."""
    visible = [word for word in PAYLOADS[number].split() if word.isprintable()][:1]
    assert visible
    for name in (f"r/run-{number:02d}.html", f"r/run-{number:02d}/t1.html", f"r/run-{number:02d}/source.html"):
        assert all(word in Page(site / name).words for word in visible)


def test_files_are_named_by_run_ids_alone(site: Path):
    names: set[Any] = {path.name for path in site.rglob("*")} | {path.parent.name for path in site.rglob("*")}
    assert [name for name in names if not all(c.isalnum() or c in "-_." for c in name)] == []
