"""SIGINT and SIGTERM to every kind of command: exit code 130 or 143, one line that says how to go on, nobody left."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import tiny_onnx
from waiting import output_of, wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="looks at processes in /proc"),
]
SIGNALS = pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
AGAIN = "run the same command again to go on"
WORDS = ("latte: interrupted", "latte: terminated")
CLASSIFY_HEADER = "prediction  probability  file\n"
RUN = ("--benchmark", "cifar10c-mini", "--methods", "clip,tda,tda-global,dmn", "--seeds", "0-99", "--runs", "runs")


def start(folder, *arguments):
    """Start a command in a session of its own, so that a signal can go to it and to its workers, as from a terminal."""
    command = [sys.executable, "-m", "latte", *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=folder, stdout=pipe, stderr=pipe, text=True, start_new_session=True)


def wait(process, condition):
    def holds():
        assert process.poll() is None, process.stderr.read()
        return condition()

    wait_until(holds, "the moment to send the signal")


def loaded(process, name):
    """Whether a process has loaded an extension module."""
    try:
        return name in Path(f"/proc/{process.pid}/maps").read_text()
    except OSError:
        return False


def descendants(pid):
    """Return everybody below a process."""
    try:
        below = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
    return below + [other for child in below for other in descendants(child)]


def gone(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def stop(process, number, everybody=True):
    """Send the signal; return the exit code, what was printed and the last line on stderr."""
    workers = descendants(process.pid)
    (os.killpg if everybody else os.kill)(process.pid, number)
    output, errors = output_of(process)
    assert "Traceback" not in errors and "Exception ignored" not in errors and "leaked" not in errors, errors
    said = [line for line in errors.splitlines() if "latte: " in line and "x.png: the file is empty" not in line]
    assert len(said) == 1 and said[0].startswith(WORDS), errors
    # the tracker of multiprocessing follows its parent
    wait_until(lambda: all(map(gone, workers)), f"the end of the workers {workers}")
    return process.returncode, output, errors.splitlines()[-1], workers


@SIGNALS
@pytest.mark.parametrize("everybody", [True, False])
def test_run_keeps_what_is_finished_and_leaves_no_worker(tmp_path, number, code, everybody):
    process = start(tmp_path, "run", *RUN)
    wait(process, lambda: any(path.stat().st_size for path in tmp_path.glob("runs/*/items.jsonl")))
    ended, output, line, workers = stop(process, number, everybody)
    assert ended == code and not output and line.endswith(AGAIN) and len(workers) >= 2
    (folder,) = (tmp_path / "runs").iterdir()
    assert (folder / "items.jsonl").stat().st_size and not (folder / "done").exists() and not (folder / "lock").exists()


@SIGNALS
def test_workers_that_are_told_first(tmp_path, number, code):
    """The parent sees its workers die, and is closing the pool when the signal reaches it."""
    process = start(tmp_path, "run", *RUN)
    wait(process, lambda: any(path.stat().st_size for path in tmp_path.glob("runs/*/items.jsonl")))
    workers = [pid for pid in descendants(process.pid) if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    for pid in workers:
        os.kill(pid, signal.SIGTERM)
    wait(process, lambda: any(map(gone, workers)))
    ended, _, line, _ = stop(process, number)
    assert ended == code and line.endswith(AGAIN)


@SIGNALS
def test_workers_that_are_only_starting_say_nothing(tmp_path, number, code):
    process = start(tmp_path, "run", *RUN)
    wait(process, lambda: len(descendants(process.pid)) >= 2)
    ended, _, line, _ = stop(process, number)
    assert ended == code and line.endswith(AGAIN)


@SIGNALS
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("demo",), "nothing is kept"),
        (("paper", "theory", "--quick"), "nothing is kept"),
        (("paper", "cost",), "nothing is kept"),
        (("paper", "figure", "memory"), AGAIN),
        (("sweep", *RUN, "--over", "alpha=1,2"), AGAIN),
        (("tune", "--benchmark", "cifar10c-mini", "--methods", "tda"), AGAIN),
        (("classify", *("x.png",) * 3000, "--classes", "a,b", "--encoder", f"onnx:{tiny_onnx.FOLDER}"), "--memory"),
    ],
)  # fmt: skip
def test_a_signal_while_modules_are_imported(tmp_path, arguments, words, number, code):
    (tmp_path / "x.png").touch()
    process = start(tmp_path, *arguments)
    wait(process, lambda: loaded(process, "_multiarray_umath"))
    ended, output, line, _ = stop(process, number)
    # a signal that comes late finds the header of the table printed, and no row: no picture can be read
    assert ended == code and output in ("", CLASSIFY_HEADER) and words in line


@SIGNALS
def test_figure_while_it_computes(tmp_path, number, code):
    process = start(tmp_path, "paper", "figure", "decentralisation", "--seeds", "0-9")
    assert process.stderr.readline() == "runs 0/420\n"
    wait(process, lambda: any(path.stat().st_size for path in tmp_path.glob("figures/runs/*/items.jsonl")))
    ended, output, line, _ = stop(process, number)
    assert ended == code and not output and line.endswith(AGAIN)
    assert any(path.stat().st_size for path in tmp_path.glob("figures/runs/*/items.jsonl"))


@SIGNALS
def test_embed_keeps_its_chunks(tmp_path, number, code):
    pytest.importorskip("onnxruntime")
    from PIL import Image

    for i in range(1100):  # three chunks
        path = tmp_path / "pictures" / "day" / ("cat", "dog")[i % 2] / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (40, 40), (i % 256, 0, 0)).save(path)
    options = ("--encoder", f"onnx:{tiny_onnx.FOLDER}", "--out", "x.safetensors", "--views", "2")
    process = start(tmp_path, "embed", "folder:pictures", *options)
    wait(process, lambda: list(tmp_path.glob("x.safetensors.partial/*.safetensors")))
    ended, output, line, _ = stop(process, number)
    assert ended == code and not output and line.endswith(AGAIN)
    assert not (tmp_path / "x.safetensors").exists()
    assert list(tmp_path.glob("x.safetensors.partial/*.safetensors"))


CLUSTER = """
from distributed import LocalCluster
if __name__ == "__main__":
    cluster = LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None)
    print(cluster.scheduler_address, flush=True)
    input()
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    pytest.importorskip("distributed")
    path = tmp_path_factory.mktemp("cluster") / "cluster.py"
    path.write_text(CLUSTER)
    pipe = subprocess.PIPE
    process = subprocess.Popen([sys.executable, path], stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)
    yield process.stdout.readline().strip()
    process.communicate("\n")


@SIGNALS
def test_a_run_on_a_cluster(tmp_path, cluster, number, code):
    process = start(tmp_path, "run", *RUN, "--executor", f"dask:{cluster}")
    wait(process, lambda: any(path.stat().st_size for path in tmp_path.glob("runs/*/items.jsonl")))
    ended, output, line, _ = stop(process, number)
    assert ended == code and not output and line.endswith(AGAIN)


@SIGNALS
def test_theory_while_it_computes(tmp_path, number, code):
    process = start(tmp_path, "paper", "theory")
    assert process.stderr.readline().startswith("simulating")
    ended, output, line, _ = stop(process, number)
    assert ended == code and not output and "nothing is kept" in line and not list(tmp_path.iterdir())


def test_whoever_ignores_ctrl_c_still_does(tmp_path):
    code = (
        "import signal, os, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); os.execv(sys.executable, sys.argv[1:])"
    )
    arguments = [sys.executable, "-m", "latte", "demo", "--json"]
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait(process, lambda: loaded(process, "_multiarray_umath"))
    process.send_signal(signal.SIGINT)
    output, errors = output_of(process)
    assert process.returncode == 0 and output.startswith("[") and "interrupted" not in errors


def test_a_call_in_a_program_gives_the_signals_back():
    from latte.cli import main

    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)], sys.unraisablehook
    with pytest.raises(SystemExit):
        main(["--version"])
    assert ([signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)], sys.unraisablehook) == before


OPEN_POOL = """
import sys
import time
from latte.cli.stop import Stopper
from latte.runtime import processes, signals_held

if __name__ == "__main__":
    pool = processes(2)
    executor = pool.__enter__()
    with signals_held():
        executor.submit(time.sleep, 60)
    Stopper("nothing").leave(2)
"""


def test_leaving_with_an_open_pool_removes_its_semaphores(tmp_path):
    (tmp_path / "open_pool.py").write_text(OPEN_POOL)
    done = subprocess.run([sys.executable, "open_pool.py"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 130 and done.stderr == "latte: interrupted; nothing\n"


WORKING = """
import sys
from pathlib import Path
from threading import Event
from latte.cli.stop import Stopped, Stopper

stopper = Stopper("nothing")
stopper.install()
Path("slow.py").write_text("print('importing', flush=True)\\nimport threading\\n"
                           "threading.Event().wait(float(open('seconds').read()))")
sys.path.insert(0, ".")
try:
    import slow
    Event().wait()
except Stopped as stopped:
    print("unwound", "slow" in sys.modules)
    stopper.leave(stopped.number)
"""


@SIGNALS
@pytest.mark.parametrize(("seconds", "last"), [("0.1", "unwound True\n"), ("60", "")])
def test_a_short_import_is_finished_and_a_long_one_is_not_waited_for(tmp_path, number, code, seconds, last):
    (tmp_path / "seconds").write_text(seconds)
    pipe = subprocess.PIPE
    process = subprocess.Popen([sys.executable, "-c", WORKING], cwd=tmp_path, stdout=pipe, stderr=pipe, text=True)
    assert process.stdout.readline() == "importing\n"
    process.send_signal(number)
    output, errors = output_of(process)
    assert process.returncode == code and output == last and errors.count("latte: ") == 1 == len(errors.splitlines())
