"""The leaderboard: ranks beside a slow bootstrap, what a row says, filters, and what is refused."""

import json

import numpy as np
import pytest

from browser import read_element
from latte.analysis.stats import Answers
from latte.report.formats.text import signed
from latte.report.leaderboard import draw_ranks
from small_benchmark import small_file
from waiting import latte

METHODS = "clip,tda,tda-global,pta-fed,latte"


def answers(right):
    images = np.arange(len(right))
    return Answers(images, np.ones(len(right), np.int64), np.asarray(right, np.int64))


def slow_ranks(right, draws, rng):
    """Draw images and one split less, one by one, and rank by counting; right is (methods, splits, images)."""
    methods, splits, images = right.shape
    found = []
    for _ in range(draws):
        chosen = rng.integers(images, size=images)
        some = rng.integers(splits, size=max(1, splits - 1))
        means = [right[m][some][:, chosen].mean() for m in range(methods)]
        found.append([sum(o > own for o in means) + (sum(o == own for o in means) + 1) / 2 for own in means])
    return np.array(found)


def test_ranks_are_spread_as_by_drawing_images_and_splits_one_by_one():
    rng = np.random.default_rng(1)
    right = rng.random((4, 3, 300)) < np.array([0.50, 0.53, 0.56, 0.70])[:, None, None]
    fast = draw_ranks([[answers(split) for split in method] for method in right])
    slow = slow_ranks(right, 1000, rng)
    assert fast.mean(axis=0) == pytest.approx(slow.mean(axis=0), abs=0.12)
    assert fast.std(axis=0) == pytest.approx(slow.std(axis=0), abs=0.12)
    assert (fast[:, 3] == 1).mean() > 0.99  # far ahead in every draw


def test_equal_methods_share_their_rank_and_every_draw_has_all_ranks():
    one = np.arange(50) % 2
    ranks = draw_ranks([[answers(one)], [answers(one)], [answers(np.ones(50))]], draws=20)
    assert (ranks == [2.5, 2.5, 1]).all()
    assert (ranks.sum(axis=1) == 6).all()


def test_answers_to_other_images_give_no_ranks():
    assert draw_ranks([[answers([1, 0, 1])], [answers([1, 0])]]) is None
    assert draw_ranks([[answers([1, 0, 1])], [None]]) is None


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("leaderboard")
    for name in ("one", "two"):
        small_file(folder, name, seed=len(name) + ord(name[0]))
        options = ("--seeds", "0-2", "--runs", folder / "runs", "--predictions", "--jobs", "serial")
        latte("run", "--data", folder, "--benchmark", name, "--methods", METHODS, *options)
    latte("run", "--data", folder, "--benchmark", "one", "--methods", "oga", "--seeds", "0-1", *options[2:])
    return folder / "runs"


def test_rows_have_gains_ranks_bytes_and_origins(runs):
    (board,) = json.loads(latte("leaderboard", runs, "--json").stdout)
    rows = {entry["name"]: entry for entry in board["entries"]}
    assert [one["title"] for one in board["sets"]] == ["one", "two"]
    assert set(rows) == {*METHODS.split(","), "oga"}
    for place, one in enumerate(board["sets"]):
        scores = {name: row["scores"][place] for name, row in rows.items() if row["scores"][place]}
        assert sum(score["rank"] for score in scores.values()) == sum(range(1, len(scores) + 1))
        assert all(score["rank_low"] <= score["rank_high"] for score in scores.values())
        assert scores["latte"]["gain"] == pytest.approx(scores["latte"]["accuracy"] - one["zero_shot"])
        assert scores["latte"]["kilobytes"] > 0 == scores["tda"]["kilobytes"]
        assert all(score["milliseconds"] > 0 for score in scores.values())
    assert board["sets"][0]["seeds"] == [0, 1]  # those that all rows have
    assert rows["oga"]["scores"][1] is None and rows["oga"]["mean_rank"] is None
    assert rows["latte"]["mean_rank"] is not None and rows["clip"]["mean_gain"] is None
    assert rows["pta-fed"]["form"] == "collaborative" and rows["tda"]["origin"]["licence"] == "MIT"


def test_a_form_takes_part_alone_beside_zero_shot(runs):
    (board,) = json.loads(latte("leaderboard", runs, "--form", "local", "--json").stdout)
    assert {entry["name"] for entry in board["entries"]} == {"clip", "tda", "oga"}


def test_the_same_numbers_as_text_markdown_and_page(runs, tmp_path):
    text = latte("leaderboard", runs).stdout
    latte("leaderboard", runs, "--out", tmp_path / "board.md")
    latte("leaderboard", runs, "--out", tmp_path / "board.html")
    (board,) = json.loads(latte("leaderboard", runs, "--json").stdout)
    first = next(entry for entry in board["entries"] if entry["name"] == "latte")
    gain = signed(first["scores"][0]["gain"], 1)
    for shown in (text, (tmp_path / "board.md").read_text(), (tmp_path / "board.html").read_text()):
        assert first["label"] in shown and gain in shown


def test_a_plugin_tells_the_title_form_and_origin_of_its_methods(tmp_path):
    small_file(tmp_path, "three")
    plugin = tmp_path / "own.py"
    plugin.write_text("""
from latte import Clip, register
from latte.methods.base import Origin

class Own(Clip):
    title, origin = "Ours", Origin("A paper", "CVPR 2025", licence="MIT", constants="by hand")

register("own", f"{__name__}:Own")
register("own-global", f"{__name__}:Own", shared=True)
""")
    where = ("--data", tmp_path, "--benchmark", "three", "--runs", tmp_path / "runs", "--jobs", "serial")
    latte("run", *where, "--methods", "clip,own,own-global", "--seeds", "0", "--plugin", plugin, check=True)
    told = latte("leaderboard", tmp_path / "runs", "--plugin", plugin, "--json", check=True)
    rows = {entry["label"]: entry for entry in json.loads(told.stdout)[0]["entries"]}
    assert {label: row["form"] for label, row in rows.items() if label != "CLIP"} == {
        "Ours (local)": "local", "Ours (global)": "global"
    }  # fmt: skip
    assert rows["Ours (local)"]["origin"]["constants"] == "by hand"
    assert "Ours (global)" in latte("report", tmp_path / "runs", "--plugin", plugin, check=True).stdout


def test_a_set_without_zero_shot_is_refused(runs, tmp_path):
    small_file(tmp_path, "three")
    latte("run", "--data", tmp_path, "--benchmark", "three", "--methods", "tda", "--runs", tmp_path, "--jobs", "serial")
    refused = latte("leaderboard", tmp_path)
    assert refused.returncode == 2 and "three" in refused.stderr and "clip" in refused.stderr


@pytest.mark.slow
def test_boxes_of_the_page_hide_the_rows_of_a_form(runs, tmp_path):
    latte("leaderboard", runs, "--out", tmp_path / "board.html")
    probe = """<pre id="seen"></pre><script>addEventListener("load", () => {
      const shown = () => [...document.querySelectorAll("table.board tbody tr")].filter((row) => !row.hidden)
        .map((row) => row.cells[1].textContent.trim());
      const before = shown();
      document.querySelector("input[data-form=global]").click();
      document.querySelectorAll("table.board thead button")[2].click();
      const wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
      document.getElementById("seen").textContent = JSON.stringify({before, after: shown(), wide});
    });</script>"""
    page = tmp_path / "board.html"
    page.write_text(page.read_text().replace("</body>", probe + "</body>"))
    seen = json.loads(read_element(page, "seen"))
    assert "global" in seen["before"]
    assert sorted(seen["after"]) == sorted(form for form in seen["before"] if form != "global")
    assert seen["wide"] <= 0
