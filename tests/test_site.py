"""The documentation site: it builds without a warning, every link leads somewhere, and its search finds things."""

import doctest
import importlib
import json
import re
import shutil
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from browser import read_element
from waiting import ROOT, run

SEARCHES = {  # what a reader types, and a page that must be among the first three results
    "own method": "own-method.html",
    "memory file": "files.html#the-memory-file",
    "Ristretto": "ristretto.html",
}
WIDTHS = (1280, 390)
LOOKED_AT = ("index", "own-method", "deploy", "files", "cli", "results", "api/latte")
SEARCH = """<pre id="seen"></pre><script>
const shadows = (root) => [...root.querySelectorAll("*")].flatMap((one) => one.shadowRoot ? roots(one.shadowRoot) : []);
const roots = (root) => [root, ...shadows(root)];
const inside = (selector) => roots(document).slice(1).flatMap((root) => [...root.querySelectorAll(selector)]);
const pause = () => new Promise((resolve) => setTimeout(resolve, 100));
const until = async (condition) => { while (!condition()) await pause(); return condition(); };
const errors = [];
addEventListener("error", (event) => errors.push(event.message));
addEventListener("load", async () => {
  const results = {};
  document.querySelector(".md-search__button").click();
  const input = await until(() => inside("input")[0]);
  const shown = () => inside("a").map((link) => link.getAttribute("href"));
  for (const words of SEARCHES) {
    input.value = words;
    input.dispatchEvent(new Event("input", { bubbles: true }));
    await until(() => shown().some((link) => link.includes("?h=" + words.replaceAll(" ", "+"))));
    results[words] = shown();
  }
  document.getElementById("seen").textContent = JSON.stringify({ results, errors });
});
</script>"""
MEASURE = """<script>addEventListener("load", () => parent.postMessage([location.pathname, innerWidth,
  document.documentElement.scrollWidth, getComputedStyle(document.body).backgroundColor], "*"));</script>"""
FRAMES = """<!doctype html><meta name="color-scheme" content="light dark"><pre id="seen"></pre><script>
const seen = [];
addEventListener("message", (event) => {{
  seen.push(event.data);
  if (seen.length === {count}) document.getElementById("seen").textContent = JSON.stringify(seen);
}});
</script>{frames}"""


class Measured(NamedTuple):
    """What a page says of itself, widths in pixels."""

    path: str
    window: int
    content: int
    background: str


@pytest.fixture
def make_site(monkeypatch):
    """The program that builds the site."""
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    pytest.importorskip("griffe", reason='needs: pip install -e ".[docs]"')
    return importlib.import_module("make_site")


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The site, built once; the build fails for a broken link, for a page without a place, and for a warning."""
    pytest.importorskip("zensical", reason='needs: pip install -e ".[docs]"')
    folder = tmp_path_factory.mktemp("site")
    done = run(sys.executable, ROOT / "tools" / "make_site.py", "--folder", folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not re.search("warn", done.stdout + done.stderr, re.IGNORECASE), done.stdout + done.stderr
    return folder / "site"


def test_every_page_is_built_and_in_the_navigation(site, make_site):
    front = (site / "index.html").read_text(encoding="utf-8")
    for page in make_site.pages_of(make_site.navigation()):
        if not page.endswith("/"):
            place = page.removesuffix(".md") + ".html"
            assert (site / place).is_file() and f'href="{place}"' in front, page


def test_the_api_reference_has_every_public_name(site, make_site):
    pages = {path.stem: path.read_text(encoding="utf-8") for path in (site / "api").glob("*.html")}
    places = make_site.homes()
    assert len(places) > 100
    missing = [name for name, place in places.items() if f'id="{place}"' not in pages[place.rpartition(".")[0]]]
    assert missing == []


def test_the_search_finds_what_readers_look_for(site, tmp_path):
    shutil.copytree(site, tmp_path / "site")
    page = tmp_path / "site" / "index.html"
    probe = SEARCH.replace("SEARCHES", json.dumps(list(SEARCHES)))
    page.write_text(page.read_text(encoding="utf-8").replace("</body>", probe + "</body>"), encoding="utf-8")
    seen = json.loads(read_element(page, "seen", milliseconds=120_000))
    assert seen["errors"] == []
    for words, wanted in SEARCHES.items():
        links = [re.sub(r"\?h=[^#]*", "", link) for link in seen["results"][words]]
        assert any(link.endswith(wanted) for link in links[:3]), (words, links)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_is_wider_than_its_window(site, tmp_path, scheme):
    shutil.copytree(site, tmp_path / "site")
    for name in LOOKED_AT:
        page = tmp_path / "site" / f"{name}.html"
        page.write_text(page.read_text(encoding="utf-8").replace("</body>", MEASURE + "</body>"), encoding="utf-8")
    pairs = [(name, width) for name in LOOKED_AT for width in WIDTHS]
    frames = [f'<iframe src="{name}.html" width="{width}" height="900"></iframe>' for name, width in pairs]
    frame = tmp_path / "site" / "frames.html"
    frame.write_text(FRAMES.format(count=len(frames), frames="".join(frames)), encoding="utf-8")
    flags = ["--blink-settings=preferredColorScheme=0"] if scheme == "dark" else []
    seen = [Measured(*one) for one in json.loads(read_element(frame, "seen", *flags, milliseconds=60_000))]
    assert {one.window for one in seen} == set(WIDTHS)
    assert [one for one in seen if one.content > one.window] == []
    (colour,) = {one.background for one in seen}
    assert (colour == "rgb(255, 255, 255)") == (scheme == "light")


# --- what ends a build -----------------------------------------------------------------------------------------


@pytest.fixture
def small_site(tmp_path, monkeypatch, make_site):
    """A repository with a navigation of one page."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "one.md").write_text("# One\n")
    (tmp_path / "zensical.toml").write_text('[project]\nnav = [{ "A" = ["one.md"] }]\n')
    monkeypatch.setattr(make_site, "ROOT", tmp_path)
    return tmp_path


def test_a_page_without_a_place_ends_the_build(small_site, make_site):
    make_site.check_navigation()
    (small_site / "docs" / "two.md").write_text("# Two\n")
    with pytest.raises(SystemExit, match=r"docs/two.md: not in nav of zensical.toml"):
        make_site.check_navigation()


def test_a_place_without_a_page_ends_the_build(small_site, make_site):
    (small_site / "docs" / "one.md").unlink()
    with pytest.raises(SystemExit, match=r"nav names one.md, which docs/ does not have"):
        make_site.check_navigation()


def test_the_examples_of_the_program_hold(make_site):
    outcome = doctest.testmod(make_site)
    assert outcome.attempted and not outcome.failed


def test_a_link_to_a_missing_page_ends_the_build(make_site):
    assert make_site.site_text("docs/cli.md", "[a](files.md#x)") == "[a](files.md#x)"
    with pytest.raises(SystemExit, match=r"docs/cli.md: links to nowhere.md, which does not exist"):
        make_site.site_text("docs/cli.md", "[a](nowhere.md)")


def test_what_was_built_is_checked_link_by_link(tmp_path, make_site):
    problems = make_site.problems

    (tmp_path / "a.html").write_text('<a href="b.html#here">b</a><img src="p.png"><a href="https://example.org">e</a>')
    (tmp_path / "b.html").write_text('<p id="here"></p>')
    (tmp_path / "p.png").write_bytes(b"")
    assert problems(tmp_path) == []
    (tmp_path / "b.html").write_text('<script src="https://example.org/s.js"></script><a href="c.html">c</a>')
    (tmp_path / "p.png").unlink()
    assert problems(tmp_path) == [
        "a.html: loads p.png, which does not exist",
        "a.html: links to b.html#here, which does not exist",
        "b.html: loads https://example.org/s.js; the site has to work without a network",
        "b.html: links to c.html, which does not exist",
    ]
