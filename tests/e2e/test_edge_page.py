"""The commands and the example of docs/edge.md run, in order, with a small model and a few pictures."""

import re
import shlex
import sys

import pytest

import devices
from serving import server_process
from waiting import ROOT, latte, running, wait_until

pytest.importorskip("onnxruntime")

pytestmark = pytest.mark.slow
PAGE = (ROOT / "docs" / "edge.md").read_text(encoding="utf-8")
ADDRESS = "http://127.0.0.1:8420"


def commands() -> list[list[str]]:
    blocks = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
    return [shlex.split(line)[1:] for block in blocks for line in block.splitlines()]


@pytest.fixture
def here(tmp_path):
    """A folder with what the commands expect."""
    (tmp_path / "photos").mkdir()
    for number, name in enumerate(("one", "two")):
        for path in devices.write_pictures(tmp_path / "photos" / name, 6, first=100 * number):
            path.rename(path.with_name(f"IMG_{int(path.stem) % 100 + 1:04}.jpg"))
    (tmp_path / "labels.csv").write_text("file,label\nphotos/two/IMG_0002.jpg,horse\n")
    return tmp_path


def test_a_fleet_of_two_takes_four_commands():
    block = re.search(r"```console\n(.*?)```", PAGE, re.DOTALL)[1]
    assert [line.split()[1] for line in block.splitlines()] == ["task", "serve", "edge", "edge"]


def test_every_command_and_the_example_of_the_page_work(here, monkeypatch):
    (task, *_), (_, serve, *rest) = commands()[:1], commands()
    latte(*(devices.ENCODER if word == "onnx:clip-b16" else word for word in task), cwd=here, check=True)
    assert serve == ["serve", "federation.task", "--folder", "server"]
    with server_process(here / "federation.task", here / "server") as (address, _):
        (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
        monkeypatch.chdir(here)
        exec(compile(fill_in(code, address), "edge.md", "exec"), {})
        for words in rest:
            given = [fill_in(word, address) for word in words]
            if "--watch" in given:
                watch(here, given)
            else:
                latte(*given, cwd=here, check="status" not in given)  # of a device that does not run, it is 3
    assert devices.status(here / "two")["labels"]["labelled"] == 2 and devices.recorded(here / "three") == 6


def fill_in(text: str, address: str) -> str:
    return text.replace(ADDRESS, address).replace("onnx:clip-b16", devices.ENCODER)


def watch(folder, words):
    """Run a command that has no end until it has done something."""
    with running(sys.executable, "-m", "latte", *words, cwd=folder) as process:
        state = folder / words[words.index("--state") + 1]
        wait_until(lambda: devices.recorded(state) == 6, "all pictures", process)
        devices.end(process)


def test_the_page_names_the_numbers_of_the_code():
    from latte.edge.device import device, feeds, record, syncing, watch

    assert f"at most {feeds.QUEUE_ROOM} names" in PAGE.replace("\n", " ").replace("At most", "at most")
    assert (feeds.PICTURES_AHEAD, watch.SETTLED_SECONDS, watch.WRITING_PATIENCE) == (4, 1.0, 10.0)
    assert (device.SAVE_EVERY, syncing.LONGEST_PAUSE, syncing.FIRST_PAUSE) == (500, 300.0, 1.0)
    assert "after every 500 pictures" in PAGE.replace("\n", " ")
    assert (record.GROUP_PICTURES, record.GROUP_SECONDS) == (64, 10.0)
    assert "up to 64 of them or ten seconds" in PAGE.replace("\n", " ")
    assert (watch.CLOSED_SECONDS, watch.MOST_TRIES, feeds.NAMED_TRIES, feeds.HEARD_SECONDS) == (
        0.3,
        8,
        3,
        10.0,
    )
    assert record.HISTORY == 100_000 and "100,000" in PAGE
