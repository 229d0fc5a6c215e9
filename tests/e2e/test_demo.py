"""``latte demo``: its numbers are the README's, its gains are above zero, and its page stands alone."""

import re

import pytest

from waiting import ROOT, latte

pytestmark = pytest.mark.slow

README = (ROOT / "README.md").read_text(encoding="utf-8")
SHOWN = re.search(r"<!-- demo -->\n```text\n(.*?)```", README, re.DOTALL)[1]
ROW = re.compile(r"^(?P<name>\S.*?) {2,}(?P<accuracy>[\d.]+) +(?:(?P<gain>\+[\d.]+) \[(?P<low>\S+), (?P<high>\S+)\])? +(?P<kb>[\d,]+)$", re.M)  # fmt: skip  # noqa: E501


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    return folder, latte("demo", cwd=folder, check=True)


def rows() -> dict[str, re.Match[str]]:
    return {match["name"]: match for match in ROW.finditer(SHOWN)}


def test_it_prints_what_the_readme_shows(demo):
    assert demo[1].stdout == SHOWN, "run: python tools/make_readme.py"


def test_progress_and_what_to_do_next_go_to_stderr(demo):
    last, then = demo[1].stderr.splitlines()[-2:]
    assert last.startswith("wrote report.html") and then.startswith("next: latte run --benchmark pacs-demo ")


def test_it_can_be_read_in_a_terminal():
    lines = SHOWN.splitlines()
    assert len(lines) <= 10 and max(map(len, lines)) <= 81
    assert "not CLIP" in SHOWN and "95 % interval" in SHOWN and "best of 4" in SHOWN


def test_the_gains_are_above_zero():
    shown = rows()
    assert list(shown) == ["zero-shot", "DMN-ZS (global), best of 4", "Latte", "Ristretto"]
    assert all(float(shown[name]["low"]) > 0 for name in ("Latte", "Ristretto"))


def test_the_picture_has_the_numbers_of_the_demo():
    picture = (ROOT / "docs" / "figures" / "readme.svg").read_text(encoding="utf-8")
    words = re.findall(r"<text[^>]*>(.*?)</text>", picture)
    for name, row in rows().items():
        if name == "zero-shot":
            assert f"points over zero-shot, which has {row['accuracy']} %" in words
        else:
            assert {name, f"{row['accuracy']} %", row["gain"], f"{row['kb']} kB per client"} <= set(words)


def test_the_page_is_self_contained(demo):
    page = (demo[0] / "report.html").read_text(encoding="utf-8")
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", page)
    for words in (
        "Gain over zero-shot",
        "Gain over time",
        "Whose prototypes",
        "art_painting",
        "not CLIP",
        "DMN-ZS (global)",
    ):
        assert words in page
    assert page.count(">Latte − zero-shot") == 1, "the gain in accuracy, once"
    assert not re.search(r">\s*CLIP\s*<|−\s*CLIP", page), "zero-shot is not called CLIP: the encoder is another"
