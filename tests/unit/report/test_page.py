"""The page of a run: safe against hostile names, complete, and usable in a real browser.

The browser is Chromium (`make browser`), driven by playwright over its own protocol; without it these tests are skipped.
"""

from __future__ import annotations

import importlib
import json
import re
import shutil
import time
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch
from torch import nn

import stator
from stator import events
from stator.cli.rank_files import summary
from stator.errors import UserFrame
from stator.report.page import page, to_json
from stator.report.run_data import Price, Recording, recording, run_data

HOSTILE = "</script><img src=x onerror=\"document.title='owned'\">&lt;\u2028'`${1}@DATA@\ud800"
CHROMIUM = next((found for name in ("chromium", "chromium-browser", "google-chrome")
                 if (found := shutil.which(name))), None)


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin, self.scale = nn.Linear(4, 4), 1.0

    def forward(self, x, mask=None):
        y = self.lin(x) * self.scale
        if y.sum() > 1e9:  # breaks
            y = y / 2
        return y + 1


@pytest.fixture(scope="module")
def data():
    model = Gated()
    compiled = stator.compile(model, backend="eager", isolate_recompiles=True)
    with recording() as run:
        compiled(torch.ones(2, 4))
        model.scale = 2.0
        compiled(torch.ones(2, 4))
    found = next(event for event in run.log if isinstance(event, events.GraphBreak))
    late = events.EagerFallback("late", "the stance is 'eager_on_recompile'", __file__, 1)
    run.add(late)
    run.calls = [(0.0, 0), (run.seconds, 2)]
    return run_data(run, "script.py", [Price(found, 2, 3.0, 5.0)], eager=[(late, 0.25)])


def hostile_data(count: int = 50):
    run = Recording()
    frame = UserFrame(HOSTILE, 3, HOSTILE)
    kinds = [events.GraphBreak("SB001", HOSTILE, HOSTILE, HOSTILE, HOSTILE, 3, (frame,)),
             events.Recompile(HOSTILE, HOSTILE, f"{HOSTILE} == 1", HOSTILE, HOSTILE, HOSTILE, 3),
             events.EagerFallback(HOSTILE, HOSTILE, HOSTILE, 3), events.CaptureStarted(HOSTILE, HOSTILE, 1),
             events.CaptureFinished(HOSTILE, 0, 0, 0.1)]
    for number in range(count):
        run.add(kinds[number % len(kinds)])
    run.seconds = 1.0
    return run_data(run, HOSTILE)


class Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag, attrs) -> None:
        self.found.append(tag)
        assert not any(name.startswith("on") or name in ("src",) for name, _ in attrs), attrs


def test_the_data_names_the_users_terms(data) -> None:
    line = next(n for n, text in enumerate(Path(__file__).read_text().splitlines(), 1) if "# breaks" in text)
    row = data["breaks"][0]
    assert (row["code"], row["file"], row["line"], row["passages"]) == ("SB002", __file__, line, 2)
    assert row["added_us"] == 5.0 and row["stack"][-1]["name"] == "model.forward"
    assert data["recompiles"][0]["entries"][0]["cause"] == "model.scale was 1.0, is 2.0"
    nodes = [node for capture in data["captures"] for node in capture["nodes"]]
    assert any(node["file"] == __file__ for node in nodes) and __file__ in data["sources"]
    assert all(capture["guard_us"] > 0 for capture in data["captures"])
    recompile, [eager] = data["recompiles"][0], data["eager"]
    assert 0 < recompile["seconds"] < data["seconds"] and recompile["guard_us"] > 0
    assert (eager["count"], eager["timed"], eager["seconds"]) == (1, 1, 0.25)
    assert json.loads(json.dumps(data)) == data


def test_hostile_names_stay_text() -> None:
    text = page(hostile_data())
    parsed = Elements()
    parsed.feed(text.encode("utf-8", "replace").decode())
    assert parsed.found.count("script") == 2 and "img" not in parsed.found
    inside = re.search(r'id="data">(.*?)</script>', text, re.DOTALL)
    assert inside is not None and not set("<>&\u2028") & set(inside[1])
    assert json.loads(inside[1])["title"] == HOSTILE
    assert to_json({"a": "</script>"}) == '{"a":"\\u003c/script\\u003e"}'
    assert "http:" not in text.replace("http-equiv", "") and "https:" not in text


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None or importlib.util.find_spec("playwright") is None:
        pytest.skip("no Chromium with playwright: `make browser` installs them")
    driver = importlib.import_module("playwright.sync_api").sync_playwright().start()
    opened = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
    yield opened
    opened.close()
    driver.stop()


def opened(browser, tmp_path: Path, found, **options):
    file = tmp_path / "page.html"
    file.write_text(page(found), encoding="utf-8")
    tab = browser.new_page(**options)
    tab.problems = []
    tab.on("pageerror", lambda error: tab.problems.append(str(error)))
    tab.on("console", lambda message: tab.problems.append(message.text) if message.type == "error" else None)
    tab.on("request", lambda request: tab.problems.append(request.url) if not request.url.startswith("file:") else None)
    began = time.perf_counter()
    tab.goto(f"file://{file}")
    tab.wait_for_selector("html[data-ready=yes]")
    tab.took = time.perf_counter() - began
    return tab


SECTIONS = ("overview", "timeline", "breaks", "recompiles", "eager", "graphs", "guards", "sizes", "regions", "memory",
            "source")


def test_click_through_every_section(browser, tmp_path: Path, data) -> None:
    tab = opened(browser, tmp_path, data, viewport={"width": 390, "height": 780}, color_scheme="dark")
    for name in SECTIONS:
        tab.click(f"#tab-{name}")
        assert tab.inner_text("#view").strip()
        assert tab.evaluate("document.documentElement.scrollWidth") <= 390, name
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(15, 19, 24)"
    assert tab.problems == []


def test_from_a_break_to_its_line_to_its_node_and_back(browser, tmp_path: Path, data) -> None:
    tab = opened(browser, tmp_path, data)
    tab.click("#tab-breaks")
    assert "5.0 us" in tab.inner_text("#view") and "Remedy:" in tab.inner_text("#view")
    tab.click("#tab-recompiles")
    assert "to compile again; one check of the new entry takes" in tab.inner_text("#view")
    tab.click("#tab-eager")
    assert "1 call; 250.0 ms each: 250.0 ms in all" in tab.inner_text("#view")
    tab.click("#tab-breaks")
    tab.click("article .link >> nth=0")
    assert "# breaks" in tab.inner_text(".source .hit")
    tab.click(".source .l:has-text('return y + 1')")
    tab.click("td .link >> nth=0")
    assert "add" in tab.inner_text("tr.at")
    tab.click("tr.at .link")
    assert "return y + 1" in tab.inner_text(".source .hit")
    tab.click("#tab-graphs")
    tab.fill("input[type=search]", "linear")
    assert "linear" in tab.inner_text("details tbody tr >> nth=0")
    assert tab.problems == []


def test_ranks_stand_side_by_side(browser, tmp_path: Path, data) -> None:
    other = {**data, "title": "script.py", "breaks": [], "recompiles": []}
    ranks = [each | {"rank": rank, "summary": summary(each, ())} for rank, each in enumerate((data, other))]
    tab = opened(browser, tmp_path, {"title": "script.py", "version": 1, "ranks": ranks},
                 viewport={"width": 390, "height": 780})
    assert tab.inner_text("#summary").startswith("rank 0 of 2: ")
    tab.click("#tab-ranks")
    assert "SB002 the truth of a tensor" in tab.inner_text("#view")
    assert tab.evaluate("document.querySelectorAll('td.differs').length") >= 4
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390
    tab.click("#view .link >> nth=1")
    assert tab.inner_text("#summary").startswith("rank 1 of 2: ") and "0 breaking lines" in tab.inner_text("#summary")
    tab.click("#tab-breaks")
    assert "No graph break" in tab.inner_text("#view") and tab.problems == []


def test_the_keyboard_is_enough(browser, tmp_path: Path, data) -> None:
    tab = opened(browser, tmp_path, data)
    tab.focus("#tab-overview")
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("ArrowRight")
    assert tab.evaluate("document.activeElement.id") == "tab-breaks"
    for _ in range(2):
        tab.keyboard.press("Tab")
    tab.keyboard.press("Enter")
    assert tab.get_attribute("#tab-source", "aria-selected") == "true"
    assert tab.problems == []


def test_hostile_names_in_the_browser_and_ten_thousand_events(browser, tmp_path: Path) -> None:
    tab = opened(browser, tmp_path, hostile_data(10_000))
    took = tab.evaluate("performance.getEntriesByType('navigation')[0].domComplete")
    assert took < 1000, f"{took} ms"
    for name in SECTIONS:
        tab.click(f"#tab-{name}")
    assert tab.evaluate("document.querySelectorAll('img').length") == 0
    assert "onerror" in tab.title() and tab.problems == []
