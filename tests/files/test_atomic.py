"""The one writer: whole files only, whatever fails, however many write at once."""

import ast
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import latte
from latte.files.atomic import STALE, append_line, replacing, write_bytes, write_text, writing
from latte.files.tensors import read_safetensors, write_safetensors
from waiting import output_of

ROWS = 20_000
SAVES = 30
WRITER = """
import sys
from pathlib import Path
import numpy as np
from latte.files.tensors import write_safetensors
for value in range({saves}):
    write_safetensors(Path(sys.argv[1]), {{"a": np.full({rows}, value)}}, {{"value": str(value)}})
"""


def save_often(path, errors):
    try:
        for value in range(SAVES):
            write_safetensors(path, {"a": np.full(ROWS, value)}, {"value": str(value)})
    except BaseException as error:
        errors.append(error)


def test_many_threads_and_processes_save_and_read_one_file(tmp_path):
    path, errors = tmp_path / "memory.safetensors", []
    write_safetensors(path, {"a": np.zeros(ROWS, int)}, {"value": "0"})
    code = WRITER.format(saves=SAVES, rows=ROWS)
    processes = [subprocess.Popen([sys.executable, "-c", code, str(path)], stderr=subprocess.PIPE) for _ in range(2)]
    threads = [threading.Thread(target=save_often, args=(path, errors)) for _ in range(4)]
    for thread in threads:
        thread.start()
    reads = 0
    while any(thread.is_alive() for thread in threads) or any(process.poll() is None for process in processes):
        tensors = read_safetensors(path)
        assert (tensors.arrays["a"] == int(tensors.metadata["value"])).all()
        reads += 1
    assert not errors and reads > 0
    for process in processes:
        assert output_of(process)[1] == b"" and process.returncode == 0
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_what_fails_leaves_the_old_file_and_nothing_else(tmp_path, error):
    path = tmp_path / "x.json"
    write_text(path, "old")
    with pytest.raises(error), writing(path) as file:
        file.write(b"half")
        raise error
    with pytest.raises(error), replacing(path) as part:
        part.write_bytes(b"half")
        raise error
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_a_text_that_cannot_be_written_changes_nothing(tmp_path):
    write_text(tmp_path / "x", "old")
    with pytest.raises(UnicodeEncodeError):
        write_text(tmp_path / "x", "\ud800")
    assert (tmp_path / "x").read_text() == "old"


def test_a_link_is_followed_and_permissions_stay(tmp_path):
    real, link = tmp_path / "real", tmp_path / "link"
    write_text(real, "old")
    real.chmod(0o640)
    link.symlink_to(real)
    write_text(link, "new")
    assert link.is_symlink() and real.read_text() == "new"
    assert real.stat().st_mode & 0o777 == 0o640


def test_a_pipe_is_written_to_and_stays_a_pipe(tmp_path):
    pipe, seen = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: seen.append(pipe.read_bytes()))
    reader.start()
    write_bytes(pipe, b"through")
    reader.join()
    assert seen == [b"through"] and pipe.is_fifo()


def test_leftovers_of_killed_processes_go_and_those_of_others_stay(tmp_path):
    old, fresh = tmp_path / ".x[1].json.0123.part", tmp_path / ".x[1].json.4567.part"
    other = tmp_path / ".y.json.0123.part"
    for part in (old, fresh, other):
        part.write_bytes(b"")
    before = time.time() - STALE - 60
    for part in (old, other):
        os.utime(part, (before, before))
    write_text(tmp_path / "x[1].json", "{}")
    assert not old.exists() and fresh.exists() and other.exists()


def test_a_name_as_long_as_the_system_allows(tmp_path):
    path = tmp_path / ("ä" * 125)  # 250 bytes
    write_text(path, "x")
    assert path.read_text() == "x"


def test_lines_are_added(tmp_path):
    for line in ("a", "ü"):
        append_line(tmp_path / "x", line)
    assert (tmp_path / "x").read_text(encoding="utf-8") == "a\nü\n"


# a lock is no content; a download is resumed under its own name; an archive is unpacked into a folder of its own
OTHERS = {"experiment/folder.py", "data/fetch.py"}
OTHERS |= {"edge/classify/answers.py", "edge/device/report.py", "demo/fleet.py"}  # grow line by line
WRITERS = {"write_text", "write_bytes", "savetxt", "savez", "savez_compressed", "save_file", "to_csv"}


def test_nothing_is_written_beside_the_one_writer():
    """Whoever needs a new way to write adds it to ``latte.files.atomic``."""
    root = Path(latte.__file__).parent
    for file in root.rglob("*.py"):
        name = file.relative_to(root).as_posix()
        if name != "files/atomic.py" and name not in OTHERS:
            tree = ast.parse(file.read_text(encoding="utf-8"))
            lines = [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Call) and writes(node)]
            assert not lines, f"{name} writes in lines {lines}"


def writes(call):
    if not isinstance(call.func, ast.Attribute):
        return False
    modes = [arg.value for arg in call.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
    return call.func.attr in WRITERS or (call.func.attr == "open" and any(set(mode) & set("wax+") for mode in modes))
