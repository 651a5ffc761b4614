"""The pages in Chromium: what runs, what is refused, what a reader can do with and without a script."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from payloads import PAYLOADS
from sites import SOURCE, baseline, curve, home, passed, render, run_files, small, steps
from test_site_hostile import hostile

from arena import paths
from arena.schema import Annotation

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: scripts/setup site")
CHROMIUM = Path("/usr/bin/chromium")
AXE = paths.PACKAGE.parent / ".cache" / "axe" / "axe.min.js"
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM.exists(), reason="Chromium is not installed: scripts/setup site"),
    pytest.mark.filterwarnings("default"),  # playwright's own
]
OPTIONS = [
    *("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"),
    *("--disable-component-update", "--disable-sync", "--disable-quic"),
]
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=str(CHROMIUM), args=OPTIONS)
        yield started
        started.close()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Annotation]:
    folder = tmp_path_factory.mktemp("browser")
    made, run, _ = small(folder / "home")
    long = passed(7, 0.2, harness="codex", model="long")
    other = passed(8, 0.7, harness="codex", model="long", problem="topk_bitonic")
    home(made, [long, other], [baseline(problem="topk_bitonic")], [curve(long)])
    run_files(made, long, [step | {"at_s": n / 1} for n in range(100) for step in steps(f"turn {n}")], [SOURCE])
    render(made, folder / "site")
    return folder / "site", run


class Tab:
    """One page, and what happened on it."""

    def __init__(self, browser: Any, **given: Any) -> None:
        self.context = browser.new_context(viewport={"width": given.pop("width", 1280), "height": 900}, **given)
        self.page = self.context.new_page()
        self.seen: list[str] = []
        self.page.on("dialog", self._dialog)
        self.page.on("console", lambda line: self._see(f"console {line.text[:200]}", line.type == "error"))
        self.page.on("pageerror", lambda error: self._see(f"error {error}"))
        self.page.on("request", lambda asked: self._see(asked.url, not asked.url.startswith("file:")))

    def _dialog(self, dialog: Any) -> None:
        self._see(f"dialog {dialog.message}")
        dialog.dismiss()

    def _see(self, what: str, wrong: bool = True) -> None:
        if wrong:
            self.seen.append(what)

    def open(self, path: Path, place: str = "") -> Any:
        self.page.goto(f"file://{path}{place}")
        return self.page


@pytest.fixture
def tab(browser: Any) -> Iterator[Any]:
    tabs: list[Tab] = []

    def make(**given: Any) -> Tab:
        tabs.append(Tab(browser, **given))
        return tabs[-1]

    yield make
    for one in tabs:
        one.context.close()


def steps_page(site: tuple[Path, Annotation]) -> Path:
    return site[0] / "r" / site[1].run_id / "t1.html"


def test_payloads_do_nothing(tab, tmp_path: Path):
    runs = [hostile(number, text) for number, text in enumerate(PAYLOADS)]
    made = home(tmp_path / "home", runs)
    for run, text in zip(runs, PAYLOADS, strict=True):
        usable = text.encode(errors="replace").decode()
        run_files(made, run, steps(text), ["x = 1\n", f"# {usable}\n{usable}\n"])
    written = render(made, tmp_path / "site")
    pages = [name for name in written if name.endswith(".html")]
    shown = tab()
    for name in pages:
        page = shown.open(tmp_path / "site" / name)
        live = "document.querySelectorAll('img, iframe, script, form, object, base').length"
        assert page.evaluate(f"[window.PWNED, {live}]") == [None, 1]
    assert len(pages) > 4 * len(PAYLOADS)
    assert shown.seen == []


def test_the_policy_refuses_what_is_slipped_in(site, tab):
    shown = tab()
    page = shown.open(site[0] / "index.html")
    page.evaluate(
        """() => {
            const image = document.createElement('img');
            image.setAttribute('onerror', 'window.PWNED = 1');
            image.src = 'https://evil.test/x.png';
            const script = document.createElement('script');
            script.textContent = 'window.PWNED = 2';
            const style = document.createElement('style');
            style.textContent = 'body { display: none }';
            document.body.append(image, script, style);
        }"""
    )
    page.wait_for_timeout(300)
    assert page.evaluate("window.PWNED === undefined && getComputedStyle(document.body).display !== 'none'")
    refusals = [line for line in shown.seen if "Content Security Policy" in line]
    assert len(refusals) >= 3


def test_no_page_asks_the_network_for_anything(site, tab):
    shown = tab()
    for path in sorted(site[0].rglob("*.html")):
        shown.open(path)
    assert shown.seen == []


def test_without_a_script_all_can_be_read(site, tab):
    shown = tab(java_script_enabled=False)
    page = shown.open(site[0] / "index.html")
    assert page.locator("tbody tr").count() == 3
    page = shown.open(steps_page(site))
    assert not page.locator("#find").is_visible()
    fold = page.locator("details").last
    assert not fold.locator("pre").first.is_visible()
    fold.locator("summary").click()
    assert fold.locator("pre").first.is_visible()
    assert shown.seen == []


def test_a_link_to_a_step_opens_and_shows_it(site, tab):
    page = tab().open(steps_page(site), "#s10")
    page.wait_for_timeout(200)
    assert page.evaluate("document.querySelector('#s10 details').open")
    page = tab(width=600).open(site[0] / "r" / site[1].run_id / "source.html", "#L-11")
    page.wait_for_timeout(200)
    box = page.locator("#L-11 + a").bounding_box()
    assert box and 0 <= box["y"] < 900


def test_a_link_to_a_step_finds_its_page(site, tab):
    [folder] = [path for path in (site[0] / "r").iterdir() if path.is_dir() and "long" in path.name]
    page = tab().open(folder / "t1.html", "#s893")
    page.wait_for_url("**/t3.html#s893")
    box = page.locator("#s893").bounding_box()
    assert box and 0 <= box["y"] < 900


def test_the_search_and_the_kinds_filter_steps(site, tab):
    page = tab().open(steps_page(site))
    whole = page.locator(".step:visible").count()
    page.fill("#find", "load_inline")
    assert page.inner_text("#found") == f"1 of {whole} steps"
    assert page.locator(".step:visible details[open]").count() == 1
    page.fill("#find", "")
    page.uncheck("input[value=thinking]")
    assert page.inner_text("#found") == f"{whole - 1} of {whole} steps"


def test_columns_sort_by_number(site, tab):
    page = tab().open(site[0] / "index.html")
    button = page.locator("thead th", has_text="paged_attention").locator("button")
    column = "tbody tr td:nth-child(2)"
    button.click()
    assert [text.split("\n")[0][:5] for text in page.locator(column).all_inner_texts()] == ["0.400", "0.300", "0.200"]
    button.click()
    assert [text.split("\n")[0][:5] for text in page.locator(column).all_inner_texts()] == ["0.200", "0.300", "0.400"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360])
def test_axe_finds_nothing(site, tab, scheme, width):
    if not AXE.exists():
        pytest.skip(f"{AXE} is not there: scripts/setup site")
    shown = tab(color_scheme=scheme, width=width, bypass_csp=True)
    compared = next((site[0] / "c").rglob("*.html"))
    run = site[0] / "r" / f"{site[1].run_id}.html"
    names = ["index.html", "cost.html", "method.html", "p/h200/paged_attention-v1.html"]
    found = {}
    for path in [*(site[0] / name for name in names), run, compared, steps_page(site), *run.with_suffix("").glob("[ds]*.html")]:
        page = shown.open(path)
        page.add_script_tag(path=str(AXE))
        violations = page.evaluate(
            "tags => axe.run({runOnly: tags}).then(r => r.violations.map(v => [v.id, v.nodes[0].html.slice(0, 200)]))", TAGS
        )
        wider = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        if violations or wider > 0:
            found[path.name] = violations, wider
    assert found == {}


def test_plots_are_readable_on_a_phone(site, tab):
    shown = tab(width=360)
    run = f"r/{site[1].run_id}.html"
    seen = 0
    for name in ("cost.html", "p/h200/paged_attention-v1.html", run):
        page = shown.open(site[0] / name)
        texts = page.evaluate(
            """() => [...document.querySelectorAll('.plot text, .strips text, .strips span')].map(text => {
                const box = text.getBoundingClientRect(), around = text.closest('.plot, .strips').getBoundingClientRect();
                const inside = box.left >= around.left - 1 && box.right <= Math.min(around.right, innerWidth) + 1;
                return [text.textContent, inside, box.height];
            })"""
        )
        # A line's box is about 1.2 times its letters' size.
        assert [text for text, inside, height in texts if text and not (inside and height > 10.5)] == [], name
        seen += len(texts)
    assert seen > 50


def test_print_opens_the_folds(site, tab):
    page = tab().open(steps_page(site))
    page.emulate_media(media="print")
    assert page.locator("details pre").last.is_visible()
    assert not page.locator("header.bar").is_visible()
    assert len(page.pdf()) > 10_000
