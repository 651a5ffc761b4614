"""Hostile text in every field that an agent, a submission, a provider or a reviewer fills: no page has an element of it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pages import Page
from payloads import PAYLOADS
from records import trial
from sites import EVIDENCE, baseline, curve, home, passed, render, run_files, steps

from arena.schema import Annotation, Baselines, Curve


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


def rejected(number: int, text: str) -> Annotation:
    """A run that did not pass, with the text in its score."""
    made = trial("incorrect", number).model_dump(mode="json")
    made["run_id"] = f"no-{number:02d}"
    made["score"] |= {"message": text, "input_class": text, "shape": {"N": 8}}
    return Annotation.model_validate(made)


def libraries(texts: Sequence[str]) -> Baselines:
    """A baseline with each text as its title and message."""
    made = baseline().model_dump(mode="json")
    known = {"verdict": "incorrect", "fraction": 0.25}
    made["lines"] = [
        made["lines"][0] | known | {"name": f"library_{number}", "title": text, "message": text}
        for number, text in enumerate(texts)
    ]
    return Baselines.model_validate(made)


def scored(run: Annotation, text: str) -> Curve:
    """The run's curve with the text in it."""
    made = curve(run).model_dump(mode="json")
    made["points"][0] |= {"message": text}
    return Curve.model_validate(made | {"device": text})


def written(folder: Path, payloads: Sequence[str]) -> Path:
    """The site of runs with these texts."""
    texts = [text.encode(errors="replace").decode() for text in payloads]
    runs = [hostile(number, text) for number, text in enumerate(payloads)]
    failed = [rejected(number, text) for number, text in enumerate(texts)]
    curves = [scored(run, text) for run, text in zip(runs, texts, strict=True)]
    made = home(folder / "home", [*runs, *failed], [libraries(texts)], curves)
    for run, text, usable in zip(runs, payloads, texts, strict=True):
        run_files(made, run, steps(text), [f'X = """{usable}"""\n', f'X = """\n#include {usable}\n"""\n# {usable}\n{usable}'])
    render(made, folder / "site")
    return folder / "site"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("hostile"), PAYLOADS)


def test_there_are_forty_payloads():
    assert len(set(PAYLOADS)) >= 40


def test_no_page_has_an_element_of_a_few(tmp_path: Path):
    pages = sorted(written(tmp_path, PAYLOADS[2::16]).rglob("*.html"))
    assert {str(path.relative_to(tmp_path)): found for path in pages if (found := Page(path).faults())} == {}


@pytest.mark.slow
def test_no_page_has_an_element_of_theirs(site: Path):
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 4 * len(PAYLOADS)
    assert {str(path.relative_to(site)): found for path in pages if (found := Page(path).faults())} == {}


@pytest.mark.slow
@pytest.mark.parametrize("number", range(0, len(PAYLOADS), 9))
def test_the_words_are_still_there(site: Path, number):
    """The check above would pass for pages that show nothing."""
    visible = [word for word in PAYLOADS[number].split() if word.isprintable()][:1]
    assert visible
    for name in (f"r/run-{number:02d}.html", f"r/run-{number:02d}/t1.html", f"r/run-{number:02d}/source.html"):
        assert all(word in Page(site / name).words for word in visible)


@pytest.mark.slow
def test_other_records_are_there_too(site: Path):
    text = PAYLOADS[0]
    assert Page(site / "r" / "no-00.html").words.count(text) == 2  # the message, and the input class
    [problem] = (site / "p").rglob("*.html")
    assert Page(problem).words.count(text) > 2


@pytest.mark.slow
def test_files_are_named_by_run_ids_alone(site: Path):
    names: set[Any] = {path.name for path in site.rglob("*")} | {path.parent.name for path in site.rglob("*")}
    assert [name for name in names if not all(c.isalnum() or c in "-_." for c in name)] == []
