"""The page in a real browser: it runs without errors, sorts, hides lines, shows what is under the pointer, and fits."""

import json

import pytest

from browser import read_element
from report.page import full_page

pytestmark = pytest.mark.slow

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
seen.open = document.querySelectorAll("details[open]").length;
seen.high = document.documentElement.scrollHeight;
document.querySelectorAll("details").forEach((one) => { one.open = true; });
seen.opened = document.documentElement.scrollHeight;
seen.wide = Math.max(seen.wide, document.documentElement.scrollWidth - document.documentElement.clientWidth);
const boxed = (element) => element.closest(".scroll, .sheet, .skip") !== null;
seen.outside = [...document.querySelectorAll("main *, header *")].filter(
  (one) => one.getBoundingClientRect().right > innerWidth + 1 && !boxed(one)
).map((one) => one.tagName + "." + one.className);
const scrolls = (box) => box.scrollWidth > box.clientWidth + 2;
const boxes = [...document.querySelectorAll(".scroll")].filter((box) => !box.closest("details"));
seen.faded = boxes.map((box) => [scrolls(box), box.classList.contains("more")]);
const last = [...document.querySelectorAll(".plot")].at(-1);
seen.named = point(last, 0.5, 0.5);
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
    page = full_page().replace("<style>", CATCH + "<style>", 1).replace("</body>", PROBE + "</body>")
    (tmp_path / "page.html").write_text(page, encoding="utf-8")
    (tmp_path / "frame.html").write_text(FRAME.format(width=width), encoding="utf-8")
    return json.loads(read_element(tmp_path / "frame.html", "seen", *flags))


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
    assert phone["outside"] == [], "figures and tables scroll inside their box"
    assert [True, True] in phone["faded"]
    assert all(scrolls == fades for scrolls, fades in phone["faded"]), "the edge says that there is more"


def test_what_is_folded_takes_no_room(laptop):
    assert laptop["open"] == 0
    assert laptop["opened"] > laptop["high"] + 500
    assert laptop["outside"] == []


def test_a_sweep_names_its_values(laptop):
    assert laptop["named"].startswith("1\n") and "Latte" in laptop["named"]


def test_a_dark_page(tmp_path, laptop):
    dark = visit(tmp_path, 1280, "--blink-settings=preferredColorScheme=0")
    assert laptop["ink"] == "rgb(255, 255, 255)"
    assert dark["ink"] == "rgb(21, 24, 29)"
