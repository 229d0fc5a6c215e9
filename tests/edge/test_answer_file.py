"""The table of answers: safe cells, and what an interrupted call leaves behind is gone on with or refused."""

import csv
import io
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from latte.edge import Answer
from latte.edge.classify.answers import AnswerFile, locked_answers

FILES = [Path(f"{i}.jpg") for i in range(6)]


def answer(i, label="cat"):
    return Answer(str(FILES[i]), label, 0.5, 0.25, "dog")


def write(path, numbers, start=0, files=FILES):
    table = AnswerFile(path, files, start)
    table.open()
    for i in numbers:
        table.add(answer(i))
    table.close()
    return table


def rows(path):
    return list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))))


def test_a_row_per_answer(tmp_path):
    path = tmp_path / "a.csv"
    write(path, range(6))
    assert [row["file"] for row in rows(path)] == [str(file) for file in FILES]
    assert rows(path)[0] == {
        "file": "0.jpg", "label": "cat", "probability": "0.500000", "certainty": "0.250000", "zero_shot": "dog",
        "zero_shot_probability": "", "near_copy": "no", "problem": "",
    }  # fmt: skip


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(min_size=1), st.text(), st.text())
def test_any_names_are_one_line_each_and_no_formula(tmp_path, file, label, problem):
    path = tmp_path / "a.csv"
    table = AnswerFile(path, [Path("x")])
    table.open()
    table.add(Answer(file, label, problem=problem))
    table.close()
    content = path.read_bytes()
    assert content.count(b"\n") == 2 and content.endswith(b"\n") and b"\r" not in content
    (row,) = rows(path)
    for cell in (row["file"], row["label"], row["problem"]):
        assert not cell.lstrip().startswith(("=", "@", "+", "-")) or is_number(cell)


def is_number(text):
    try:
        float(text)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("torn", [b"", b"3.jpg,ca", b"3.jpg,cat,0.5,0.25,dog,no,\n4.jp"])
def test_rows_behind_what_the_memory_covers_are_written_again(tmp_path, torn):
    whole, path = tmp_path / "whole.csv", tmp_path / "a.csv"
    write(whole, range(6))
    write(path, range(3))
    with path.open("ab") as file:
        file.write(torn)
    write(path, range(2, 6), start=2)
    assert path.read_bytes() == whole.read_bytes()


def test_without_the_earlier_table_only_the_rest_is_written(tmp_path):
    table = write(tmp_path / "new.csv", range(2, 6), start=2)
    assert table.missing == 2 and [row["file"] for row in rows(table.path)] == ["2.jpg", "3.jpg", "4.jpg", "5.jpg"]


@pytest.mark.parametrize(
    "content", ["", "a,b\n1,2\n", "HEADER0.jpg,x\n", "HEADER0.jpg,x\n7.jpg,x\n", "HEADER0.jpg,x\n1.jpg"]
)
def test_a_table_of_something_else_is_refused_and_left_alone(tmp_path, content):
    path = tmp_path / "a.csv"
    write(path, [])
    path.write_text(content.replace("HEADER", path.read_text(encoding="utf-8")), encoding="utf-8")
    before = path.read_bytes()
    with pytest.raises(ValueError, match="give another --out, or remove the file"):
        AnswerFile(path, FILES, 2)
    assert path.read_bytes() == before


def test_nothing_is_written_before_open(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("mine", encoding="utf-8")
    AnswerFile(path, FILES)
    assert path.read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize(("name", "message"), [(".", "is a folder"), ("no/a.csv", "folder is not there")])
def test_places_that_cannot_be_written_are_refused(tmp_path, name, message):
    with pytest.raises(ValueError, match=message), locked_answers(tmp_path / name):
        pass
    assert not list(tmp_path.iterdir())


def test_one_process_at_a_time(tmp_path):
    path = tmp_path / "a.csv"
    with locked_answers(path), pytest.raises(ValueError, match="another process at work"), locked_answers(path):
        pass
