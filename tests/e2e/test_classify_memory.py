"""``latte classify --memory`` with real processes, signals and kills: nothing learnt is lost, nothing is learnt twice.

A pipe that nobody reads holds a process back, so that it is in the middle of its pictures for as long as a test needs.
"""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import tiny_onnx
from latte import Clip, ZeroShot
from latte.edge.classify import classify as learning
from waiting import latte

pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.skipif(os.name != "posix", reason="sends signals")
NUMBER = 2000  # pictures: their lines are more than a pipe holds
COMMON = ("--classes", "cat,dog,horse", "--encoder", f"onnx:{tiny_onnx.FOLDER}", "--json")


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """A dozen pictures, named again and again."""
    from PIL import Image

    folder, rng = tmp_path_factory.mktemp("pictures"), np.random.default_rng(0)
    for i in range(12):
        pixels = rng.normal(20 * i, 60, (40, 50, 3)).clip(0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{i}.png")
    return [str(folder / f"{i}.png") for i in rng.integers(12, size=NUMBER)]


def start(pictures, memory, *options):
    command = [sys.executable, "-m", "latte", "classify", *pictures, *COMMON, "--memory", str(memory), *options]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True)


def finish(process):
    with process:
        output, errors = process.stdout.read(), process.stderr.read()  # stderr is a line or two
    return process.returncode, output.splitlines(), said(errors)


def classify(pictures, memory, *options):
    """Do as :func:`start` and :func:`finish`, in this process."""
    done = latte("classify", *pictures, *COMMON, "--memory", memory, *options)
    return done.returncode, done.stdout.splitlines(), said(done.stderr)


def said(errors):
    """Return the lines on stderr without that about the encoder."""
    return [line for line in errors.splitlines() if not line.startswith("encoder: ")]


def is_summary(errors):
    """Whether the lines on stderr are those at the end of a call, and no others."""
    begins = (" images, ", "predictions the memory changed per ", "zero-shot uncertainty per ", "memory: ")
    return len(errors) == 4 and all(word in line for line, word in zip(errors, begins, strict=True))


@pytest.fixture(scope="module")
def whole(pictures, tmp_path_factory):
    """What a call that nothing disturbs prints and leaves behind."""
    memory = tmp_path_factory.mktemp("whole") / "m.safetensors"
    code, lines, errors = classify(pictures, memory)
    assert code == 0 and len(lines) == NUMBER and is_summary(errors)
    assert [path.name for path in memory.parent.iterdir()] == ["m.safetensors"]
    return lines, memory.read_bytes()


def covered(memory):
    from safetensors import safe_open

    with safe_open(memory, framework="np") as file:
        return json.loads(file.metadata()["unfinished"])["done"]


@pytest.mark.parametrize(
    ("number", "code", "word"),
    [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "term")],
)
@pytest.mark.slow
def test_a_signal_saves_what_was_printed_and_the_same_command_goes_on(pictures, whole, tmp_path, number, code, word):
    memory = tmp_path / "m.safetensors"
    process = start(pictures, memory)
    first = [process.stdout.readline().rstrip("\n") for _ in range(50)]
    process.send_signal(number)
    ended, more, errors = finish(process)
    printed = first + more
    assert ended == code and len(errors) == 1 and errors[0].startswith("latte: " + word), errors
    assert printed == whole[0][: len(printed)] and len(printed) < NUMBER
    assert f"{len(printed)} of {NUMBER} images" in errors[0] and "the same command" in errors[0]
    assert covered(memory) == len(printed)
    assert [path.name for path in tmp_path.iterdir()] == ["m.safetensors"]

    ended, rest, errors = classify(pictures, memory)
    assert ended == 0 and f"after {len(printed)} of {NUMBER} images" in errors[0] and is_summary(errors[1:])
    assert printed + rest == whole[0]
    assert memory.read_bytes() == whole[1], "as if nothing had happened"


@pytest.mark.slow
def test_killed_at_any_moment_the_memory_is_whole_and_goes_on(pictures, whole, tmp_path):
    memory = tmp_path / "m.safetensors"
    done = 0
    for reads in (30, 7, 100):
        process = start(pictures, memory, "--save-every", "0")
        printed = [process.stdout.readline() for _ in range(reads)]
        while not memory.exists() or covered(memory) <= done:  # every look at it finds a whole file
            assert process.poll() is None
        process.kill()
        with process:
            lines = [*printed, *process.stdout.read().splitlines(keepends=True)]
        lines = [line.rstrip("\n") for line in lines if line.endswith("\n")]
        assert lines == whole[0][done : done + len(lines)]
        assert done < covered(memory) <= done + len(lines), "what is saved was printed"
        done = covered(memory)
    code, rest, _ = classify(pictures, memory)
    assert code == 0 and rest == whole[0][done:]
    assert memory.read_bytes() == whole[1]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_the_table_goes_on_with_the_memory(pictures, whole, tmp_path, number):
    """Interrupted or killed, and gone on with: a row per picture, the answers that were printed."""
    memory, table = tmp_path / "m.safetensors", tmp_path / "answers.csv"
    options = ("--out", str(table), "--save-every", "0")
    process = start(pictures, memory, *options)
    for _ in range(40):
        process.stdout.readline()
    while not memory.exists():
        assert process.poll() is None
    process.send_signal(number)
    finish(process)
    done = covered(memory)
    assert len(rows_of(table)) >= done, "what the memory covers is in the table"
    code, _, errors = classify(pictures, memory, *options)
    assert code == 0 and errors[0].endswith(f"after {done} of {NUMBER} images, which m.safetensors covers")
    assert errors[-1] == f"table: {table}"
    answers = [json.loads(line) for line in whole[0]]
    assert [(row["file"], row["label"]) for row in rows_of(table)] == [(a["file"], a["label"]) for a in answers]
    assert [float(row["probability"]) for row in rows_of(table)] == pytest.approx(
        [a["probability"] for a in answers], abs=1e-6
    )
    assert sorted(path.name for path in tmp_path.iterdir() if not path.name.endswith(".lock")) == [
        "answers.csv", "m.safetensors",
    ]  # fmt: skip


def rows_of(table):
    import csv

    with table.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_a_table_that_does_not_go_on_from_the_memory_is_refused(pictures, tmp_path):
    memory, table = tmp_path / "m.safetensors", tmp_path / "answers.csv"
    process = start(pictures, memory, "--save-every", "0")
    process.stdout.readline()
    while not memory.exists():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert finish(process)[0] == 130
    table.write_text("mine", encoding="utf-8")
    code, lines, errors = classify(pictures, memory, "--out", str(table))
    assert code == 2 and not lines and "give another --out, or remove the file" in errors[-1]
    assert table.read_text(encoding="utf-8") == "mine"
    table.unlink()
    left = NUMBER - covered(memory)
    code, lines, errors = classify(pictures, memory, "--out", str(table))
    assert code == 0 and len(lines) == left == len(rows_of(table)) and any("is new: the rows of" in e for e in errors)


def test_copies_do_not_fill_a_memory(pictures, tmp_path):
    """Nine calls with the same dozen pictures: none is learnt twice, unless that is wanted."""
    memory = tmp_path / "m.safetensors"
    dozen = sorted(set(pictures))
    counts = []
    for _ in range(9):
        _, lines, errors = classify(dozen, memory)
        counts.append(sum(json.loads(line)["near_copy"] for line in lines))
    assert min(counts[1:]) > counts[0], "some of these pictures of noise are near copies of others, too"
    assert f"{counts[-1]} near copies not learnt" in errors[0]
    once = tmp_path / "once.safetensors"
    classify(dozen, once)
    assert memory.read_bytes() == once.read_bytes()
    _, lines, errors = classify(dozen, memory, "--near-copy", "0")
    assert "near cop" not in errors[0] and memory.read_bytes() != once.read_bytes()


@pytest.mark.slow
def test_a_reader_that_goes_away_costs_nothing(pictures, whole, tmp_path):
    """As in a pipe to head: the pictures whose lines nobody read any more are learnt and saved."""
    memory = tmp_path / "m.safetensors"
    process = start(pictures, memory)
    with process:
        first = process.stdout.readline().rstrip("\n")
        process.stdout.close()
        errors = process.stderr.read()
    assert first == whole[0][0] and process.returncode == 1 and "Traceback" not in errors
    done = covered(memory)
    assert 0 < done < NUMBER
    code, rest, _ = classify(pictures, memory)
    assert code == 0 and rest == whole[0][done:] and memory.read_bytes() == whole[1]


@pytest.mark.slow
def test_a_second_process_is_told_who_has_the_memory_and_changes_nothing(pictures, whole, tmp_path):
    memory = tmp_path / "m.safetensors"
    link = tmp_path / "link.safetensors"
    link.symlink_to(memory)
    first = start(pictures, memory, "--save-every", "0")
    line = first.stdout.readline()
    for name in (memory, link):
        code, lines, errors = classify(pictures, name)
        assert code == 2 and not lines and len(errors) == 1
        assert f"pid {first.pid}," in errors[0] and "latte classify" in errors[0] and str(name) in errors[0]
    code, lines, errors = finish(first)
    assert code == 0 and is_summary(errors) and [line.rstrip("\n"), *lines] == whole[0]
    assert memory.read_bytes() == whole[1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.safetensors", "m.safetensors"]
    assert link.is_symlink()


def test_a_memory_behind_a_link_is_written_where_it_is(pictures, tmp_path):
    (tmp_path / "real").mkdir()
    link = tmp_path / "link.safetensors"
    link.symlink_to(tmp_path / "real" / "m.safetensors")
    assert classify(pictures[:5], link)[0] == 0
    assert link.is_symlink() and (tmp_path / "real" / "m.safetensors").is_file()
    assert classify(pictures[:5], link)[0] == 0, "continues"


def test_other_pictures_after_an_interruption_start_at_the_first(pictures, tmp_path):
    memory = tmp_path / "m.safetensors"
    process = start(pictures, memory)
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    assert finish(process)[0] == 130
    others = list(reversed(pictures[:40]))
    code, lines, errors = classify(others, memory)
    assert code == 0 and [json.loads(line)["file"] for line in lines] == others
    code, lines, errors = classify(pictures[:40], memory)
    assert code == 0 and len(lines) == 40 and is_summary(errors), "a call that was finished is not gone on with"


@pytest.mark.parametrize("name", ["nowhere/m", "fifo", "/dev/null", "loop", "."])
def test_memories_that_cannot_be_are_refused_at_once(pictures, tmp_path, name, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("fifo")
    Path("loop").symlink_to("loop")
    before = sorted(tmp_path.rglob("*"))
    code, lines, errors = classify(pictures[:3], name)
    assert code == 2 and not lines and "memory" in errors[-1] and "Traceback" not in "".join(errors)
    assert sorted(tmp_path.rglob("*")) == before


def test_special_files_are_no_pictures_and_hold_nobody_up(pictures, tmp_path):
    os.mkfifo(tmp_path / "fifo.png")
    done = latte("classify", *pictures[:2], tmp_path / "fifo.png", "/dev/zero", *COMMON)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 1 and [row["label"] is None for row in rows] == [False, False, True, True]
    assert "a FIFO" in rows[2]["problem"] and "a device" in rows[3]["problem"]


def test_saving_is_a_small_part_of_the_work(tmp_path, monkeypatch):
    """However slow the disk is: the next save waits for twenty times what the last one took."""
    clock, saves = [0.0], []

    def save(*arguments):
        clock[0] += 3.0
        saves.append(clock[0])

    monkeypatch.setattr(learning, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(learning, "save_memory", save)
    zero_shot = ZeroShot(np.eye(3), ("a", "b", "c"))
    files = [tmp_path / str(i) for i in range(600)]
    for every, least in ((0, 60.0), (100, 100.0)):
        saves.clear()
        work = learning.Learning(tmp_path / "m.safetensors", Clip(zero_shot), zero_shot, files, every)
        for _ in files:
            clock[0] += 1.0
            work.count()
        gaps = np.diff(saves) - 3.0
        assert len(gaps) >= 4 and (gaps >= least).all() and (gaps < least + 2).all(), gaps


def test_labels_say_how_often_the_answers_are_right(pictures, tmp_path):
    few = list(dict.fromkeys(pictures))[:6]
    command = ("classify", *few, *COMMON)
    answers = [json.loads(line) for line in latte(*command, check=True).stdout.splitlines()]
    table = tmp_path / "labels.csv"
    table.write_text("file,label\n" + "".join(f"{answer['file']},{answer['label']}\n" for answer in answers[:4]))
    done = latte(*command, "--labels", table, check=True)
    assert "4 labelled images: accuracy 100.0 %" in done.stderr and "gain " in done.stderr
    assert re.search(r"^zero-shot uncertainty ", done.stderr, re.M), "too few for a course"
    table.write_text(f"elsewhere.png,{answers[0]['label']}\n")
    done = latte(*command, "--labels", table, check=True)
    assert f"accuracy unknown: {table} names none of these images" in done.stderr
