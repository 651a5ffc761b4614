"""The plot: every number in its place, in a document that any reader of XML takes."""

from xml.etree import ElementTree

from records import record, trial

from arena.results import leaderboard
from arena.results.board import Interval
from arena.results.render import Mark, Strip, gain_plot, plot, strips

SVG = "{http://www.w3.org/2000/svg}"


def drawn(found: list[Strip]) -> ElementTree.Element:
    return ElementTree.fromstring(plot("title", found))


def test_plot_scale_runs_from_zero_to_the_ceiling() -> None:
    root = drawn([Strip("p v1", [Mark("a", 0.0), Mark("b", 0.5), Mark("c", 1.0)], [])])
    low, middle, high = (
        float(circle.attrib["cx"]) for circle in root.findall(f"{SVG}circle") if circle.find(f"{SVG}title") is not None
    )
    assert low < middle < high
    assert middle == (low + high) / 2
    ticks = {text.text: float(text.attrib["x"]) for text in root.findall(f"{SVG}text") if text.get("text-anchor") == "middle"}
    assert (ticks["0"], ticks["1"]) == (low, high)


def test_plot_names_the_best_agent_or_none() -> None:
    baseline = [Mark("eager", 0.1)]
    passed = Strip("p v1", [Mark("worse", 0.2), Mark("better", 0.7)], [])
    root = drawn([passed, Strip("q v1", [], baseline), Strip("r v1", [], baseline, tried=False)])
    texts = [text.text for text in root.findall(f"{SVG}text")]
    assert "0.70 better" in texts
    assert texts.count("no agent passed") == texts.count("no agent was tried") == 1


def test_baseline_outside_the_tolerance_is_hollow() -> None:
    root = drawn([Strip("p v1", [], [Mark("eager", 0.1), Mark("rough", 0.2, within_tolerance=False)])])
    fills = {
        (path.findtext(f"{SVG}title") or ""): path.attrib["fill"]
        for path in root.findall(f"{SVG}path")
        if path.find(f"{SVG}title") is not None
    }
    assert fills == {"0.10 eager": "#6e7781", "0.20 rough": "none"}


def test_the_gain_plot_has_sealed_rows_and_says_what_differs() -> None:
    cells = [(model, fraction, budget) for model, budget in (("a", 2700), ("b", 60)) for fraction in (0.2, 0.9)]
    trials = [trial(0.1, model="naive", harness="builtin")]
    trials += [
        trial(fraction, n, harness="made", model=model, budget_s=budget) for n, (model, fraction, budget) in enumerate(cells)
    ]
    trials.append(trial(0.9, 9, harness="made", model="free", network="open"))
    [table] = leaderboard.build(trials).tables
    text = gain_plot(table)
    assert text and "made a · 45 min" in text and "made b · 1 min" in text and "free" not in text
    assert "(a failure counts ×1)" in text and "goes on beyond" in text
    again = [trial(fraction, n, harness="made", model=model) for n, (model, fraction, _) in enumerate(cells)]
    [table] = leaderboard.build([trials[0], *again]).tables
    text = gain_plot(table)
    assert text and "rank 1 to 2 of 2" in text and "45 min" not in text


def test_plot_escapes_names() -> None:
    root = drawn([Strip("</svg>\x00\ud800", [Mark('<script>&"\n', 0.5)], [])])
    assert "</svg> " in [text.text for text in root.findall(f"{SVG}text")]
    assert not root.findall(f".//{SVG}script")


def test_strips_hold_sealed_medians_and_baselines() -> None:
    """Medians of agents, sealed ones only; baselines that ran, of problems that no agent tried as well."""
    trials = [
        trial(0.1, 1),
        trial(0.3, 2),
        trial(0.5, 3),
        trial(0.9, 4, network="open", model="free"),
        trial("incorrect", 5, model="m"),
    ]
    (table,) = leaderboard.build(trials, [record(), record("top_k")]).tables
    ours, other = strips(table)
    assert (ours.name, other.name) == ("paged_attention v1", "top_k v1")
    assert ours.agents == [Mark("builtin oracle", 0.3, Interval(low=0.1, high=0.5, level=0.75))]
    assert other.agents == []
    assert ours.baselines == other.baselines == [Mark("eager", 0.25), Mark("rough", 0.5, within_tolerance=False)]
