"""The page in a real browser: it runs without errors, sorts, hides lines, shows what is under the pointer, and fits."""

import json
import re
import shutil

import pytest

from report.page import full_page
from waiting import run

NAMES = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next((found for name in NAMES if (found := shutil.which(name))), None)
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
CATCH = "<script>window.errors = []; addEventListener('error', (e) => errors.push(e.message));</script>"
PROBE = """
<script>
addEventListener("load", () => {
const body = document.querySelector("table.results tbody");
const rows = (column) => [...body.rows].map((row) => row.cells[column].textContent.trim());
const press = (column) => document.querySelectorAll("table.results thead button")[column].click();
const point = (element, x, y) => {
  element.scrollIntoView();
  const box = element.getBoundingClientRect();
  const place = { clientX: box.left + x * box.width, clientY: box.top + y * box.height, bubbles: true };
  element.dispatchEvent(new PointerEvent("pointermove", place));
  return document.getElementById("tip").textContent;
};
const seen = { ready: document.documentElement.dataset.ready, before: rows(0) };
press(2); seen.down = rows(2);
press(2); seen.up = rows(2);
seen.order = document.querySelectorAll("table.results thead th")[2].getAttribute("aria-sort");
press(4); seen.gain = rows(0);
press(0); seen.names = rows(0);
seen.lines = point(document.querySelector(".plot"), 1, 0.5);
document.querySelectorAll(".legend button")[8].click();
seen.hidden = point(document.querySelector(".plot"), 1, 0.5);
seen.drawn = document.querySelector(".plot path.line").getTotalLength() > 0;
seen.heat = point(document.querySelector(".heat-plot"), 0.99, 0.01);
seen.image = document.querySelector(".heat-plot img").naturalWidth;
seen.wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
seen.width = innerWidth;
seen.ink = getComputedStyle(document.body).backgroundColor;
seen.errors = window.errors;
parent.postMessage(JSON.stringify(seen), "*");
});
</script>
"""
# a window of a headless browser is at least 500 pixels wide, a frame may be narrower
FRAME = """<!doctype html><meta name="color-scheme" content="light dark"><style>body {{ margin: 0 }}</style>
<pre id="seen"></pre><script>
addEventListener("message", (event) => {{ document.getElementById("seen").textContent = event.data; }});
</script><iframe src="page.html" width="{width}" height="900" style="border: 0"></iframe>"""


def visit(tmp_path, width, *flags):
    """Open the page at ``width`` and return what the probe saw."""
    if BROWSER is None:
        pytest.skip("needs a Chromium browser on the path")
    page = full_page().replace("<style>", CATCH + "<style>", 1).replace("</body>", PROBE + "</body>")
    (tmp_path / "page.html").write_text(page, encoding="utf-8")
    (tmp_path / "frame.html").write_text(FRAME.format(width=width), encoding="utf-8")
    command = [BROWSER, *FLAGS, *flags, f"--user-data-dir={tmp_path / 'profile'}", "--window-size=1400,1000"]
    command += ["--virtual-time-budget=5000", "--dump-dom", (tmp_path / "frame.html").as_uri()]
    done = run(*command, check=True)
    found = re.search(r'<pre id="seen">(.*?)</pre>', done.stdout, re.S)
    assert found and found[1], done.stderr[-2000:]
    return json.loads(found[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))


@pytest.fixture(scope="module")
def laptop(tmp_path_factory):
    return visit(tmp_path_factory.mktemp("laptop"), 1280)


def test_the_script_runs_without_errors(laptop):
    assert laptop["errors"] == []
    assert laptop["ready"] == "true"


def test_a_click_sorts_and_a_second_turns_round(laptop):
    numbers = [float(text.split("±")[0]) for text in laptop["down"]]
    assert numbers == sorted(numbers, reverse=True)
    assert laptop["up"] == laptop["down"][::-1]
    assert laptop["order"] == "ascending"


def test_a_dash_sorts_last_and_names_sort_in_the_papers_order(laptop):
    assert laptop["gain"][0].startswith("Latte")
    assert laptop["gain"][-1].startswith("CLIP")
    assert laptop["names"] == laptop["before"]


def test_lines_answer_to_the_pointer_and_the_legend(laptop):
    assert laptop["drawn"]
    assert laptop["lines"].startswith("1,500\nLatte")
    assert len(laptop["lines"].splitlines()) == 10
    assert "Latte" not in laptop["hidden"]
    assert len(laptop["hidden"].splitlines()) == 9


def test_the_heat_map_answers_to_the_pointer(laptop):
    assert laptop["heat"].startswith("gaussian_noise-0 (gaussian_noise) ← saturate-1 (saturate)\n")
    assert laptop["image"] == 38


def test_the_page_is_no_wider_than_the_window(laptop):
    assert laptop["wide"] == 0


def test_a_narrow_window(tmp_path):
    phone = visit(tmp_path, 390)
    assert phone["width"] == 390
    assert phone["wide"] == 0
    assert phone["errors"] == []


def test_a_dark_page(tmp_path, laptop):
    dark = visit(tmp_path, 1280, "--blink-settings=preferredColorScheme=0")
    assert laptop["ink"] == "rgb(255, 255, 255)"
    assert dark["ink"] == "rgb(21, 24, 29)"
