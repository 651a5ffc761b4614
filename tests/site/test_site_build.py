"""The site as a folder: complete, the same each time, and never written over another one's files."""

import base64
import csv
import hashlib
import html
import json
import re
from pathlib import Path

import pytest
from pages import Page
from records import trial
from sites import baseline, curve, home, passed, render, run_files, small, steps

from arena.errors import ArenaError, DataError, UsageError
from arena.results.board import Reached
from arena.schema import Annotation, BaselineLine, Passed
from arena.site import keys, plots
from arena.site import render as rendering
from arena.site.problem_page import compared_lines

TEMPLATES = sorted((Path(rendering.__file__).parent / "templates").glob("*.j2"))


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    small(folder / "home")
    render(folder / "home", folder / "site")
    return folder / "site"


def test_the_same_records_give_the_same_bytes(site: Path, tmp_path: Path):
    render(site.parent / "home", tmp_path / "again")
    assert files(tmp_path / "again") == files(site)
    assert {"index.html", "cost.html", "method.html", "data/trials.csv", "data/leaderboard.json"} <= files(site).keys()


def test_every_link_leads_to_a_page_and_a_place(site: Path):
    pages = {path: Page(path) for path in site.rglob("*.html")}
    broken = []
    for path, page in pages.items():
        for link in page.links:
            name, _, place = link.partition("#")
            target = (path.parent / name).resolve() if name else path
            if not target.is_file() or (place and target in pages and place not in pages[target].ids):
                broken.append(f"{path.relative_to(site)}: {link}")
    assert len(pages) > 9
    assert broken == []


def test_pages_hold_only_what_templates_make(site: Path):
    assert {str(path.relative_to(site)): Page(path).faults() for path in site.rglob("*.html") if Page(path).faults()} == {}


def test_the_policy_allows_the_own_script_and_style_alone(site: Path):
    for path in site.rglob("*.html"):
        page = Page(path)
        [policy] = [given["content"] for tag, given in page.elements if given.get("http-equiv") == "Content-Security-Policy"]
        hashes = {
            tag: "sha256-" + base64.b64encode(hashlib.sha256(page.inline[tag][0].encode()).digest()).decode()
            for tag in page.inline
        }
        assert policy == (
            f"default-src 'none'; script-src '{hashes['script']}'; style-src '{hashes['style']}'; "
            "base-uri 'none'; form-action 'none'"
        )


def test_templates_trust_no_text():
    for template in TEMPLATES:
        text = template.read_text()
        assert not re.search(r"\|\s*safe|autoescape|Markup", text), template
        assert not re.search(r"\s[a-z-]+={{", text), f"{template}: an attribute without quotes"


def test_a_run_shows_what_is_known(site: Path):
    [run] = [path for path in (site / "r").glob("*builtin_oracle*.html")]
    words = " ".join(Page(run).words.split())
    for text in ("0.4000 of the ceiling", "500", "void add<float>(float*)", "1e+09 operations of the tensor cores", "0.5000 USD"):
        assert text in words
    assert "It is a kernel of its own." in words and "2 of 5 snapshots" in words
    assert "seconds since the session began" in words
    assert "curve" in Page(run).ids


def test_problem_page_compares_with_libraries(site: Path):
    page = Page(site / "p" / "h200" / "paged_attention-v1.html")
    words = " ".join(page.words.split())
    assert "1/1 · 1/1 · 0/1 (2.00×)" in words  # 2 us against 4 us: not more than twice as fast
    assert "1/2 · 1/2 · 0/2 (2.00×)" in words  # the other row: one of two trials passed
    assert {"roofline", "curve", "libraries", "trials"} <= set(page.ids)


def test_the_heatmap_tells_failed_from_not_run(site: Path):
    words = Page(site / "index.html").words
    assert "0.400" in words and "1/2" in words
    assert "Demonstration" not in words


def test_only_built_in_rows_are_marked_as_a_demonstration(tmp_path: Path):
    render(home(tmp_path / "home", [passed(1)]), tmp_path / "site")
    assert "These numbers measure no model" in Page(tmp_path / "site" / "index.html").words


def brief(run: Annotation) -> Annotation:
    """As a demonstration times it."""
    return run.model_copy(update={"score": run.score.model_copy(update={"brief": True})})


def test_a_score_that_was_timed_in_brief_says_so(tmp_path: Path):
    quick, full = brief(passed(1)), passed(2, 0.2, harness="claude", model="opus")
    render(home(tmp_path / "home", [quick, full]), tmp_path / "site")
    assert Page(tmp_path / "site" / "index.html").words.count("◔") == 2  # in its cell and in the legend
    for name, times in ((f"r/{quick.run_id}", 1), (f"r/{full.run_id}", 0), (f"c/{quick.run_id}/{full.run_id}", 1)):
        assert " ".join(Page(tmp_path / "site" / f"{name}.html").words.split()).count("timed in brief") == times
    rows = (tmp_path / "site" / "data" / "trials.csv").read_text().splitlines()
    column = rows[0].split(",").index("brief")
    assert sorted(row.split(",")[column] for row in rows[1:]) == ["False", "True"]


@pytest.mark.parametrize(("shown", "first", "second"), [("all", True, True), ("public", True, False), ("none", False, False)])
def test_transcripts_are_shown_as_asked(tmp_path: Path, shown, first, second):
    made, reviewed, other = small(tmp_path / "home")
    written = render(made, tmp_path / "site", shown)
    found = [any(name.startswith(f"r/{run.run_id}/") for name in written) for run in (reviewed, other)]
    assert found == [first, second]


def test_solutions_can_be_left_out(tmp_path: Path):
    made, _, _ = small(tmp_path / "home")
    written = render(made, tmp_path / "site", source=False)
    assert [name for name in written if "source" in name or re.search(r"/d\d", name)] == []
    assert [name for name in written if name.endswith("/t1.html")] != []


def test_a_bad_line_of_a_ledger_is_named(tmp_path: Path):
    made, run, _ = small(tmp_path / "home")
    ledger = made / "workspaces" / run.run_id / "ledger.jsonl"
    ledger.write_text('{"event": "ended", "s": 1.0, "cost_usd": 0.5}\n[]\n')
    with pytest.raises(DataError, match=r"ledger.jsonl:2: is no line of a ledger"):
        render(made, tmp_path / "site")
    ledger.rename(ledger.with_name("other"))
    ledger.symlink_to("other")
    with pytest.raises(DataError, match=r"ledger.jsonl is a symbolic link"):
        render(made, tmp_path / "site")


def test_a_snapshot_behind_a_link_is_not_shown(tmp_path: Path):
    made, run, _ = small(tmp_path / "home")
    last = sorted((made / "workspaces" / run.run_id / "snapshots").iterdir())[-1]
    last.rename(tmp_path / "elsewhere")
    last.symlink_to(tmp_path / "elsewhere")
    assert f"r/{run.run_id}/d1.html" not in render(made, tmp_path / "site")


def test_a_run_folder_behind_a_link_is_not_shown(tmp_path: Path):
    made, run, _ = small(tmp_path / "home")
    folder = made / "workspaces" / run.run_id
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    assert [name for name in render(made, tmp_path / "site") if name.startswith(f"r/{run.run_id}/")] == []


def test_one_hardware_can_be_shown_alone(tmp_path: Path):
    made = home(tmp_path / "home", [passed(1), passed(2, hardware="b200")])
    written = render(made, tmp_path / "site", hardware="b200")
    assert [name for name in written if name.startswith("p/")] == ["p/b200/paged_attention-v1.html"]


def test_another_folder_is_not_replaced(tmp_path: Path):
    made = home(tmp_path / "home", [passed(1)])
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "index.html").write_text("mine")
    with pytest.raises(UsageError, match="no site of arena"):
        render(made, tmp_path / "photos")
    assert files(tmp_path / "photos") == {"index.html": b"mine"}


@pytest.mark.parametrize("name", [".git/config", "CNAME"])
def test_a_site_with_other_files_is_not_replaced(tmp_path: Path, name):
    made = home(tmp_path / "home", [])
    render(made, tmp_path / "site")
    (tmp_path / "site" / name).parent.mkdir(exist_ok=True)
    (tmp_path / "site" / name).write_text("mine")
    with pytest.raises(UsageError, match=f"holds '{name.partition('/')[0]}', which is no part of a site"):
        render(made, tmp_path / "site")
    assert (tmp_path / "site" / name).read_text() == "mine"


def reviewed(run: Annotation, verdict: str) -> Annotation:
    made = {"verdict": verdict, "summary": "It is.", "reviewer": "A. B.", "reviewed_at": "2026-01-02T03:04:05Z"}
    return Annotation.model_validate(run.model_dump(mode="json") | {"review": made})


@pytest.mark.parametrize(("verdict", "outcome"), [("reward_hack", "withdrawn"), ("bug", "bug")])
def test_a_number_that_does_not_count_is_no_headline(tmp_path: Path, verdict, outcome):
    run = reviewed(passed(1), verdict)
    render(home(tmp_path / "home", [run], scored=[curve(run)]), tmp_path / "site")
    words = " ".join(Page(tmp_path / "site" / "r" / f"{run.run_id}.html").words.split())
    assert f"{outcome} the judge measured 0.4000 of the ceiling; no table counts it" in words
    assert f"{outcome} the judge said passed" in words
    assert "curve" not in Page(tmp_path / "site" / "p" / "h200" / "paged_attention-v1.html").ids


def test_unsteady_snapshots_are_marked():
    made = curve(passed(1))
    points = (made.points[0], made.points[1].model_copy(update={"unsteady": True}))
    plot = plots.best_so_far([("x", made.model_copy(update={"points": points}))])
    assert plot is not None
    assert [point.label for point in plot.points] == ["", "±"] and "unsteady" in plot.points[1].title


def test_times_of_two_devices_have_no_ratio(tmp_path: Path):
    first, second = passed(1, 0.4), passed(2, 0.3, harness="claude", model="opus", effort="high")
    assert isinstance(second.score, Passed)
    other = second.score.model_copy(update={"device": second.score.device.model_copy(update={"name": "another one"})})
    second = second.model_copy(update={"score": other})
    render(home(tmp_path / "home", [first, second], [baseline()]), tmp_path / "site")
    [compared] = (tmp_path / "site" / "c").rglob("*.html")
    words = " ".join(Page(compared).words.split())
    assert "On another one." in words and "two devices" in words
    problem = Page(tmp_path / "site" / "p" / "h200" / "paged_attention-v1.html")
    assert "no trial on its device" in " ".join(problem.words.split())
    [plot] = re.findall(
        r'aria-label="Roofline.*?</svg>', (tmp_path / "site/p/h200/paged_attention-v1.html").read_text(), re.DOTALL
    )
    assert "opus" not in plot


def test_the_best_rows_stand_side_by_side(tmp_path: Path):
    runs = [passed(number, 0.1 * number, harness="claude", model=f"model-{number}") for number in range(1, 9)]
    written = render(home(tmp_path / "home", [*runs, passed(9, 0.05, model="model-8")]), tmp_path / "site")
    best = runs[-1].run_id
    found = sorted(name for name in written if name.startswith("c/"))
    assert found == sorted(f"c/{best}/{run.run_id}.html" for run in runs[1:-1])
    assert f"c/{best}/{runs[-2].run_id}.html" in Page(tmp_path / "site" / "index.html").links
    for page in ("p/h200/paged_attention-v1.html", f"r/{best}.html"):
        assert len([link for link in Page(tmp_path / "site" / page).links if "c/" in link]) == 6


def test_any_two_runs_can_stand_side_by_side(tmp_path: Path):
    made, first, second = small(tmp_path / "home")
    failed = "".join(path.stem for path in (made / "annotations").glob("*0003.yaml"))
    again = passed(4, 0.2)
    home(made, [again])
    written = render(made, tmp_path / "site", compared=[(failed, first.run_id), (first.run_id, again.run_id)])
    assert len([name for name in written if name.startswith("c/")]) == 3
    words = " ".join(Page(tmp_path / "site" / "c" / failed / f"{first.run_id}.html").words.split())
    assert "First: claude · opus · high incorrect" in words and "Second: builtin · oracle 0.4000" in words
    assert "Shape" not in words
    words = Page(tmp_path / "site" / "c" / first.run_id / f"{again.run_id}.html").words
    assert words.count(f"builtin · oracle, {again.session.started_at:%Y-%m-%d %H:%M}") == 2
    href = f"../c/{failed}/{first.run_id}.html"
    assert href in Page(tmp_path / "site" / "r" / f"{failed}.html").links
    assert href in Page(tmp_path / "site" / "r" / f"{first.run_id}.html").links
    assert href not in Page(tmp_path / "site" / "r" / f"{second.run_id}.html").links


def test_a_pair_that_is_asked_for_is_not_called_the_best_two(tmp_path: Path):
    """One run passed, so there are no best two; and the marks that lower a run stand on its card."""
    failed, only = trial("incorrect", 1), passed(2, 0.9, harness="claude", model="opus", network="open")
    written = render(home(tmp_path / "home", [failed, only]), tmp_path / "site", compared=[(failed.run_id, only.run_id)])
    [pair] = [name for name in written if name.startswith("c/")]
    assert pair not in Page(tmp_path / "site" / "index.html").links
    assert "unsealed" in Page(tmp_path / "site" / pair).words


def test_a_pair_has_one_page_whichever_is_named_first(tmp_path: Path):
    first, second = passed(1, 0.1), passed(2, 0.2, harness="claude", model="opus")
    written = render(home(tmp_path / "home", [first, second]), tmp_path / "site", compared=[(first.run_id, second.run_id)])
    assert [name for name in written if name.startswith("c/")] == [f"c/{second.run_id}/{first.run_id}.html"]


def test_a_curve_changes_no_table(tmp_path: Path):
    run = passed(1)
    for name, curves in (("without", ()), ("with", (curve(run),))):
        render(home(tmp_path / name / "home", [run], (), curves), tmp_path / name / "site")
    tables = [(tmp_path / name / "site" / "data" / "trials.csv").read_bytes() for name in ("without", "with")]
    tables += [(tmp_path / name / "site" / "index.html").read_bytes() for name in ("without", "with")]
    assert (tables[0], tables[2]) == (tables[1], tables[3])


def test_two_problems_do_not_stand_side_by_side(tmp_path: Path):
    made = home(tmp_path / "home", [passed(1), passed(2, problem="topk_bitonic")])
    ids = sorted(path.stem for path in (made / "annotations").iterdir())
    for pair in ((ids[0], ids[1]), (ids[0], ids[0])):
        with pytest.raises(UsageError, match="two runs of one problem on one hardware"):
            render(made, tmp_path / "site", compared=[pair])
    with pytest.raises(UsageError, match="not among the runs of these pages"):
        render(made, tmp_path / "site", hardware="b200", compared=[(ids[0], ids[1])])


def test_libraries_outside_the_tolerance_have_no_fast_p(tmp_path: Path):
    made = baseline()
    rough = made.lines[0].model_copy(update={"verdict": "incorrect", "message": "it is off"})
    lines = made.model_copy(update={"lines": (rough, *made.lines[1:])})
    render(home(tmp_path / "home", [passed(1)], [lines]), tmp_path / "site")
    assert "fast" not in Page(tmp_path / "site" / "p" / "h200" / "paged_attention-v1.html").ids


def test_an_import_is_compared_outside_its_tolerance_too():
    """KernelBench compares with tf32; the line says that it is outside."""
    shapes = baseline().lines[0].shapes
    eager = BaselineLine(name="eager", title="torch", verdict="passed", fraction=0.1, message="it is off", shapes=shapes)
    tf32 = eager.model_copy(update={"name": "eager_tf32_gpu", "verdict": "incorrect"})
    naive = tf32.model_copy(update={"name": "naive", "reference": True})
    lines = [eager, tf32, naive]
    reached = Reached(column="a v1", baselines=baseline().model_copy(update={"lines": tuple(lines)}))
    assert [line.name for line in compared_lines(reached, imported=True)] == ["eager", "eager_tf32_gpu"]
    assert [line.name for line in compared_lines(reached, imported=False)] == ["eager"]


def test_a_counted_failure_is_told_before_uncounted_trials(tmp_path: Path):
    runs = [trial("incorrect", 1), trial("judge_failed", 2), trial("judge_failed", 3)]
    render(home(tmp_path / "home", runs), tmp_path / "site")
    words = Page(tmp_path / "site" / "index.html").words
    assert "incorrect · 0/1" in words
    assert "§" in words and "¶" in words


def test_a_site_is_replaced_whole(tmp_path: Path):
    made = home(tmp_path / "home", [passed(1), passed(2)])
    render(made, tmp_path / "site")
    before = files(tmp_path / "site")
    next((made / "annotations").glob("*0002.yaml")).unlink()
    render(made, tmp_path / "site")
    assert files(tmp_path / "site").keys() < before.keys()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home", "site"]


@pytest.mark.parametrize(
    ("place", "where"), [("transcript", "/t1.html#s2"), ("solution", "/source.html#L-2"), ("message", "#main")]
)
def test_no_page_holds_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place, where):
    key = "sk-or-0123456789'abcdef"
    monkeypatch.setenv("OPENROUTER_API_KEY", key)
    run = passed(1) if place != "message" else trial("crashed", 1)
    if place == "message":
        run = run.model_copy(update={"score": run.score.model_copy(update={"message": f"it read {key}"})})
    made = home(tmp_path / "home", [run])
    texts = (f"print(1)\nkey = {key!r}\n",) if place == "solution" else ("print(1)\n",)
    run_files(made, run, steps(f"echo {key}" if place == "transcript" else "echo"), texts)
    with pytest.raises(ArenaError, match=rf"run {run.run_id}: r/.*{where} would hold .* your own keys") as raised:
        render(made, tmp_path / "site")
    assert key not in str(raised.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home"]


def test_a_key_in_a_data_file_is_found():
    key = "sk-<or>-0123456789"
    assert keys.place_of_key(f'{{"x": "{key}"}}', [key]) == ""
    quoted = 'sk-"or"-0123\\456'
    for held in (json.dumps(quoted), json.dumps(json.dumps(quoted))):
        assert keys.place_of_key(held, [quoted]) == ""
    assert keys.place_of_key(json.dumps(quoted[1:]), [quoted]) is None
    assert keys.place_of_key("<" * 200_000, [key]) is None
    assert keys.place_of_key("<!doctype html>" + "<" * 200_000, [key]) is None
    assert keys.place_of_key(f'<!doctype html><p id="s6"><a title="{html.escape(key)}">', [key]) == "s6"
    assert keys.place_of_key(f'<!doctype html><p id="s7">a</p>{html.escape(key)}', [key]) == "s7"


def test_a_run_id_cannot_name_another_file(tmp_path: Path):
    run = passed(1).model_copy(update={"run_id": 'x"><script>'})
    with pytest.raises(DataError, match="letters, digits"):
        render(home(tmp_path / "home", [run]), tmp_path / "site")


def test_a_spreadsheet_takes_no_text_for_a_formula(tmp_path: Path):
    run = passed(1, model='=HYPERLINK("x")')
    run = run.model_copy(update={"run_id": "r1"})
    render(home(tmp_path / "home", [run]), tmp_path / "site")
    [row] = csv.DictReader((tmp_path / "site" / "data" / "trials.csv").read_text().splitlines())
    assert row["model"] == '\'=HYPERLINK("x")'
