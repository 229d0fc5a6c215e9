"""``latte serve`` and ``latte edge`` as real processes: a fleet of two, and whatever can happen to a device."""

import json
import os
import re
import select
import socket
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pytest

import devices
from devices import end, recorded, run_device, start_device, status, write_pictures
from playback import playing
from postgres import small_disk
from serving import server_process
from waiting import DEADLINE, ROOT, latte, wait_until

pytest.importorskip("onnxruntime")


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    return devices.make_task_file(tmp_path_factory.mktemp("task"))


@pytest.fixture(scope="module")
def server(task, tmp_path_factory):
    with server_process(task, tmp_path_factory.mktemp("server") / "data") as (address, _):
        yield address


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_two_devices_with_tokens_learn_from_each_other(task, tmp_path):
    data = tmp_path / "data"
    for name in ("one", "two"):
        latte("token", "create", name, "--folder", data, "--out", tmp_path / name, check=True)
        write_pictures(tmp_path / f"{name}.in", 40, first=100 * len(name) + ord(name[0]))
    with server_process(task, data, "--auth") as (server, _):
        for name in ("one", "two", "one"):  # the second time, "one" gets what "two" has learnt
            run_token_device(server, tmp_path, name)
        state = status(tmp_path / "one.state")
        assert state["name"] == "one" and state["images"] == 40 and state["sync_images"] == 40 and not state["running"]
        valid = np.frombuffer(devices.memory(tmp_path / "one.state")["external.valid"], np.bool_)
        assert valid.any(), "one has something of two"
        stranger = ("--server", server, "--encoder", devices.ENCODER, "--state", tmp_path / "s", tmp_path / "one.in")
        refused = latte("edge", *stranger)
        assert refused.returncode == 2 and "unauthorized" in refused.stderr and "Traceback" not in refused.stderr
        wrong = latte("edge", *stranger, "--token-file", tmp_path / "one", "--name", "other")
        assert wrong.returncode == 2 and "'one', to which the token" in wrong.stderr


def run_token_device(server, folder, name):
    more = ("--token-file", folder / name, "--state", folder / f"{name}.state", "--encoder", devices.ENCODER)
    return latte("edge", "--server", server, *more, folder / f"{name}.in", check=True)


def test_lines_of_json_go_to_stdout_and_a_second_call_has_nothing_to_do(server, tmp_path):
    pictures = write_pictures(tmp_path / "in", 5)
    done = run_device(server, tmp_path / "state", "lines", *pictures, pictures[0])
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["file"] for line in lines] == [str(path) for path in pictures], "one that is named twice comes once"
    assert {"number", "time", "label", "probability", "certainty", "zero_shot", "near_copy", "problem"} <= set(lines[0])
    assert done.stdout.splitlines() == devices.result_lines(tmp_path / "state")
    assert run_device(server, tmp_path / "state", "lines", *pictures).stdout == ""


def test_a_list_names_the_pictures(server, tmp_path):
    pictures = write_pictures(tmp_path / "in", 3)
    listed = tmp_path / "list.txt"
    listed.write_text("\n".join([str(pictures[0]), "", str(tmp_path / "missing.png"), str(pictures[1])]) + "\n")
    done = run_device(server, tmp_path / "state", "list", "--from", listed, code=1)
    assert [json.loads(line)["label"] is None for line in done.stdout.splitlines()] == [False, True, False]
    assert "missing.png: No such file" in done.stderr


@pytest.mark.slow
def test_a_watched_folder_and_sigterm(server, tmp_path):
    folder = tmp_path / "in"
    write_pictures(folder, 3)
    (folder / "text.jpg").write_text("not a picture")
    os.utime(folder / "text.jpg", (1_700_000_000,) * 2)
    state = tmp_path / "state"
    with start_device(server, state, "watcher", "--watch", folder) as process:
        wait_until(lambda: recorded(state) == 4, "the pictures that were there", process)
        whole = write_pictures(tmp_path / "elsewhere", 1, first=50)[0].read_bytes()
        (folder / "half.png").write_bytes(whole[: len(whole) // 2])
        write_pictures(folder, 1, first=9)
        wait_until(lambda: recorded(state) == 5, "the picture that came later", process)
        assert status(state)["running"] and status(state)["pid"] == process.pid
        (folder / "half.png").write_bytes(whole)
        wait_until(lambda: recorded(state) == 6, "the picture that was being written", process)
        end(process)
        errors = process.so_far().stderr
    answers = devices.results(state)
    assert [answer["problem"] is None for answer in answers].count(False) == 1, "only the text is unreadable"
    assert status(state)["unreadable"] == 1
    assert "text.jpg: not an image" in errors and "6 images are recorded" in errors
    assert status(state)["sync_images"] == 5, "what is new is shared at the end"


@pytest.mark.slow
def test_a_thousand_pictures_while_the_server_is_away(task, tmp_path):
    folder, state, port = tmp_path / "in", tmp_path / "state", free_port()
    write_pictures(folder, 1)
    with server_process(task, tmp_path / "data", "--port", port) as (server, _):
        run_device(server, state, "away", folder)
    write_pictures(folder, 1000, first=1)
    with start_device(server, state, "away", "--watch", folder) as process:
        wait_until(lambda: recorded(state) == 1001, "all pictures", process)
        wait_until(lambda: "does not answer" in devices.said(state).sync_problem, "the problem", process)
        assert devices.said(state).sync_images in (0, 1)
        with server_process(task, tmp_path / "data", "--port", port):
            wait_until(lambda: devices.said(state).sync_images == 1001, "a sync without anybody's help", process)
            assert status(state)["sync_problem"] == ""
        end(process)


def test_the_first_start_needs_the_server_and_says_so(tmp_path):
    pictures = write_pictures(tmp_path / "in", 1)
    with start_device(f"http://127.0.0.1:{free_port()}", tmp_path / "state", "first", *pictures) as process:
        done = process.finish()
    assert done.returncode == 1 and "the first start of a device needs its server" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.slow
def test_a_server_of_another_protocol_is_named_and_the_device_goes_on_alone(task, tmp_path):
    state, port = tmp_path / "state", free_port()
    with server_process(task, tmp_path / "data", "--port", port) as (server, _):
        run_device(server, state, "old", "--from", "/dev/null")
    pictures = write_pictures(tmp_path / "in", 20)
    with playing([], port, Latte_Protocol="2"):
        done = run_device(server, state, "old", *pictures)
        assert len(done.stdout.splitlines()) == 20
        assert "the server speaks protocol 2, this program 1: upgrade latte on this device" in done.stderr
        assert "upgrade latte" in status(state)["sync_problem"]
        with start_device(server, tmp_path / "new", "new", *pictures) as process:
            first = process.finish()
    assert first.returncode == 2 and len(first.stderr.splitlines()) == 1 and "upgrade latte" in first.stderr


@pytest.mark.slow
def test_a_full_disk_is_waited_for_and_nothing_is_lost(server, tmp_path):
    folder = tmp_path / "in"
    write_pictures(folder, 400)
    with small_disk(4) as disk:
        state, filler = disk / "state", disk / "filler"
        run_device(server, state, "full", "--from", "/dev/null")
        with start_device(server, state, "full", "--watch", folder, "--out", tmp_path / "out.jsonl") as process:
            wait_until(lambda: recorded(state) >= 20, "some pictures", process)
            fill(filler)
            wait_until(lambda: "waiting for room" in process.so_far().stderr, "the message", process)
            assert recorded(state) < 400
            end(process)  # it can be stopped meanwhile
        with start_device(server, state, "full", "--watch", folder, "--out", tmp_path / "out.jsonl") as process:
            wait_until(lambda: "waiting for room" in process.so_far().stderr, "the message", process)
            filler.unlink()
            wait_until(lambda: recorded(state) == 400, "the rest", process)
            end(process)
        assert [answer["file"] for answer in devices.results(state)] == sorted(map(str, folder.iterdir()))
        assert (tmp_path / "out.jsonl").read_text().splitlines() == devices.result_lines(state)


def fill(path):
    """Write until the disk is full."""
    with path.open("wb", buffering=0) as file:
        for size in (65_536, 4096, 512, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue


@pytest.mark.slow
def test_lines_wait_for_room_on_a_full_disk(server, tmp_path):
    """The record is on a disk with room, the file of lines is not: every line is there in the end, each once."""
    pictures = write_pictures(tmp_path / "in", 60)
    with small_disk(1) as disk:
        state, out, filler = tmp_path / "state", disk / "out.jsonl", disk / "filler"
        run_device(server, state, "lines", *pictures[:5], "--out", out)
        fill(filler)
        with start_device(server, state, "lines", *pictures, "--out", out) as process:
            wait_until(lambda: "waiting for room" in process.so_far().stderr, "the message", process)
            assert "out.jsonl" in process.so_far().stderr
            filler.unlink()
            assert process.finish().returncode == 0
        assert out.read_text().splitlines() == devices.result_lines(state) and len(devices.result_lines(state)) == 60


@pytest.mark.slow
def test_a_reader_that_has_stopped_does_not_keep_the_device_from_ending(server, tmp_path):
    """A pipe that nobody reads fills up; SIGTERM ends the device, and the record has what the pipe has not."""
    pictures = write_pictures(tmp_path / "in", 600)
    state, (reader, writer) = tmp_path / "state", os.pipe()
    command = [str(word) for word in devices.edge_command(server, state, "stalled", *pictures)]
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            command, stdout=writer, stderr=errors, env={**os.environ, "PYTHONPATH": str(ROOT / "src")}
        )
        wait_until(lambda: not select.select([], [writer], [], 0)[1], "a full pipe")
        process.terminate()
        assert process.wait(DEADLINE) == 0
        os.close(writer)
        errors.seek(0)
        said = errors.read().decode()
    shown = os.read(reader, 1 << 20).decode().splitlines()
    os.close(reader)
    after = int(re.search(r"--after (\d+)", said)[1])
    assert [json.loads(line)["number"] for line in shown[:after]] == list(range(1, after + 1))
    assert shown[:after] == devices.result_lines(state)[:after] and recorded(state) >= after


def test_status_and_results_need_no_room_and_no_right_to_write(server, tmp_path):
    pictures = write_pictures(tmp_path / "in", 3)
    with small_disk(4) as disk:
        state = disk / "state"
        run_device(server, state, "worn", *pictures)
        lines = devices.result_lines(state)
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        assert status(state)["images"] == 3 and devices.result_lines(state) == lines
        held = [os.path.realpath(file) for file in Path("/proc/self/fd").iterdir()]
        assert not [file for file in held if file.startswith(str(disk))]  # nothing keeps the disk from being taken out


def test_labels_say_whether_it_helped(server, tmp_path):
    pictures = write_pictures(tmp_path / "in", 30)
    state = tmp_path / "state"
    run_device(server, state, "labels", *pictures)
    answers = devices.results(state)
    table = tmp_path / "labels.csv"
    table.write_text("".join(f"{answer['file']},{answer['label']}\n" for answer in answers[:20]))
    stored = latte("edge", "label", "--state", state, "--labels", table, check=True).stdout
    assert "20 labels stored, 20 of them" in stored
    wrong = next(name for name in devices.CLASSES.split(",") if name != answers[20]["label"])
    said = latte("edge", "label", "--state", state, answers[20]["file"], wrong, check=True).stdout
    assert said.startswith("1 label stored, 1 of them")
    labels = status(state)["labels"]
    assert labels["labelled"] == 21 and labels["accuracy"] == pytest.approx(20 / 21)
    assert labels["accuracy_interval"][0] < 20 / 21 < labels["accuracy_interval"][1]
    text = latte("edge", "status", "--state", state).stdout
    assert "21 labelled images: accuracy 95.2 %" in text and "the memory changed" in text
    refused = latte("edge", "label", "--state", state, answers[0]["file"], "unicorn")
    assert refused.returncode == 2 and "'horse'" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run",), "give FILES, --watch DIR or --from LIST"),
        (("status", "--state", "nowhere"), "no device has worked here"),
        (("label", "a.png", "--state", "nowhere"), "no device has worked here"),
        (("results", "--state", "nowhere"), "no device has worked here"),
    ],
)
def test_what_edge_refuses(tmp_path, arguments, message):
    more = ("--server", "http://127.0.0.1:9", "--encoder", devices.ENCODER) if arguments == ("run",) else ()
    refused = latte("edge", *arguments, *more, cwd=tmp_path)
    assert refused.returncode == 2 and message in refused.stderr and "Traceback" not in refused.stderr


def test_another_encoder_is_refused(server, tmp_path, shared):
    (path,) = write_pictures(tmp_path / "in", 1)
    other = ("--encoder", f"onnx:{shared / 'data' / 'mini-vlm'}", "--any-encoder")
    with start_device(server, tmp_path / "state", "other", *other, path) as process:
        done = process.finish()
    assert done.returncode == 2 and "256 dimensions" in done.stderr


# --- what people see when something is wrong ---------------------------------------------------------------------


@pytest.mark.slow
def test_a_reader_that_is_gone_ends_the_device_with_a_word_and_a_last_sync(server, tmp_path):
    pictures = write_pictures(tmp_path / "in", 30)
    state, (reader, writer) = tmp_path / "state", os.pipe()
    os.close(reader)
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [str(word) for word in devices.edge_command(server, state, "unheard", *pictures)],
            stdout=writer, stderr=errors, env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        )  # fmt: skip
        os.close(writer)
        assert process.wait(DEADLINE) == 1
        errors.seek(0)
        said = errors.read().decode()
    assert "nobody reads the lines any more" in said and f"results --state {state} --after 0" in said
    assert "Traceback" not in said and status(state)["sync_images"] == recorded(state) > 0


def test_an_unreadable_file_makes_the_exit_code_1_and_retry_tries_it_again(server, tmp_path):
    picture, other = write_pictures(tmp_path / "in", 2)
    whole = picture.read_bytes()
    about = picture.stat()
    picture.write_bytes(bytes(len(whole)))
    os.utime(picture, ns=(about.st_atime_ns, about.st_mtime_ns))
    state = tmp_path / "state"
    done = run_device(server, state, "bad", picture, other, code=1)
    assert "1 could not be read" in done.stderr and len(done.stdout.splitlines()) == 2
    assert run_device(server, state, "bad", picture, other).stdout == "", "both are done"
    picture.write_bytes(whole)
    os.utime(picture, ns=(about.st_atime_ns, about.st_mtime_ns))
    assert "1 unreadable image to try again" in latte("edge", "retry", "--state", state, check=True).stdout
    (line,) = run_device(server, state, "bad", picture, other).stdout.splitlines()
    assert json.loads(line)["file"] == str(picture) and json.loads(line)["label"]
    assert status(state)["unreadable"] == 0 and status(state)["images"] == 2
    assert "0 unreadable images" in latte("edge", "retry", "--state", state, check=True).stdout


@pytest.mark.slow
def test_a_running_device_tries_again_when_asked(server, tmp_path):
    (picture,) = write_pictures(tmp_path / "in", 1)
    whole, about, state = picture.read_bytes(), picture.stat(), tmp_path / "state"
    picture.write_bytes(bytes(len(whole)))
    os.utime(picture, ns=(about.st_atime_ns, about.st_mtime_ns))
    with start_device(server, state, "again", "--watch", tmp_path / "in") as process:
        wait_until(lambda: recorded(state) == 1, "the unreadable picture", process)
        hidden = tmp_path / "whole.png"
        hidden.write_bytes(whole)
        os.utime(hidden, ns=(about.st_atime_ns, about.st_mtime_ns))
        hidden.rename(picture)
        latte("edge", "retry", "--state", state, check=True)
        wait_until(lambda: recorded(state) == 2, "the picture", process)
        end(process)
    assert [answer["problem"] is None for answer in devices.results(state)] == [False, True]


def test_one_dangling_link_refuses_no_other_picture(tmp_path, server):
    pictures = write_pictures(tmp_path / "in", 2)
    dangling = tmp_path / "in" / "away.png"
    dangling.symlink_to(tmp_path / "nowhere.png")
    common = ("--encoder", devices.ENCODER, "--classes", devices.CLASSES, "--json")
    done = latte("classify", *common, "--", dangling, *pictures)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 1 and [answer["problem"] is None for answer in answers] == [False, True, True]
    done = run_device(server, tmp_path / "state", "linked", dangling, *pictures, code=1)
    assert [json.loads(line)["problem"] is None for line in done.stdout.splitlines()] == [False, True, True]
    done = latte("classify", *common, "--", tmp_path / "typo.png", *pictures)
    assert done.returncode == 2 and "typo.png: no such file or folder" in done.stderr


def test_a_record_that_may_only_be_read_is_one_line(server, tmp_path):
    pictures = write_pictures(tmp_path / "in", 3)
    with small_disk(4) as disk:
        state = disk / "state"
        run_device(server, state, "read", pictures[0])
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        for words in (
            devices.edge_command(server, state, "read", *pictures)[2:],
            ("latte", "edge", "retry", "--state", state),
            ("latte", "edge", "label", pictures[0], "cat", "--state", state),
        ):
            done = latte(*words[1:])
            assert done.returncode in (1, 2) and "Traceback" not in done.stderr, done.stderr
            assert len(done.stderr.splitlines()) == 1 and "device.db" in done.stderr, done.stderr


def test_a_removed_state_folder_ends_the_device(server, tmp_path):
    write_pictures(tmp_path / "in", 2)
    state = tmp_path / "state"
    with start_device(server, state, "removed", "--watch", tmp_path / "in") as process:
        wait_until(lambda: recorded(state) == 2, "the pictures", process)
        state.rename(tmp_path / "elsewhere")
        done = process.finish()
    assert done.returncode == 1 and "has been removed or replaced" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("trust", [(), ("--trust", "fleet")])
def test_ristretto_without_its_server_is_latte_classify(tmp_path, trust):
    """The task comes from the server, which then is away: the answers are those of a machine without any server."""
    path, pictures = tmp_path / "r.task", write_pictures(tmp_path / "in", 40)
    common = ("--encoder", devices.ENCODER, "--classes", devices.CLASSES, "--method", "ristretto")
    latte("task", "create", path, *common, *trust, check=True)
    shown = latte("task", "show", path, check=True).stdout
    assert "near_copy=0.99" in shown and f"trust={'fleet' if trust else 'open'}" in shown
    with server_process(path, tmp_path / "data") as (address, _):
        run_device(address, tmp_path / "state", "alone", "--from", "/dev/null")
    run_device(address, tmp_path / "state", "alone", *pictures)
    alone = [
        json.loads(line) for line in latte("classify", *common, "--json", *pictures, check=True).stdout.splitlines()
    ]
    mine = devices.results(tmp_path / "state")
    for name in ("file", "label", "zero_shot", "near_copy"):
        assert [one[name] for one in mine] == [one[name] for one in alone], name
    np.testing.assert_allclose([one["probability"] for one in mine], [one["probability"] for one in alone], rtol=1e-4)
    assert any(one["probability"] != one["zero_shot_probability"] for one in mine), "the memory changes something"
