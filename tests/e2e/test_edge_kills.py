"""A device is killed at random moments: no picture twice, none left out, the memory of an undisturbed run.

``benchmarks/device/edge_kills.py`` is the long form.
"""

import pytest

import devices
from killed_devices import Kills
from lossy_disk import lossy_disk
from serving import server_process
from waiting import wait_until

pytest.importorskip("onnxruntime")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    return devices.write_pictures(tmp_path_factory.mktemp("pictures") / "in", 300, side=400)


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    return devices.make_task_file(tmp_path_factory.mktemp("task"))


def test_without_a_server_every_answer_is_that_of_an_undisturbed_run(pictures, task, tmp_path):
    with server_process(task, tmp_path / "data") as (server, _):
        (tmp_path / "empty").mkdir()
        for state in ("killed", "undisturbed"):  # both get their task, and then the server is away
            devices.run_device(server, tmp_path / state, "killed", "--from", "/dev/null")
    kills = Kills(tmp_path, server, pictures)
    kills.kill(8)
    kills.finish()
    kills.check_each_once()
    undisturbed = kills.undisturbed()
    assert devices.results(kills.state, "time") == devices.results(undisturbed, "time")
    assert devices.memory(kills.state) == devices.memory(undisturbed)


def test_with_a_server_the_memory_is_that_of_an_undisturbed_run(pictures, task, tmp_path):
    """Answers depend on when a download comes; the memory in the end does not, because the donor rests."""
    with server_process(task, tmp_path / "data") as (server, _):
        donor = devices.write_pictures(tmp_path / "donor", 60)
        devices.run_device(server, tmp_path / "of donor", "donor", donor[0].parent)
        kills = Kills(tmp_path, server, pictures, seed=1)
        kills.kill(7)
        kills.finish()
        kills.check_each_once()
        undisturbed = kills.undisturbed()
    assert devices.memory(kills.state, "local.") == devices.memory(undisturbed, "local.")
    assert devices.memory(kills.state) == devices.memory(undisturbed), "with what came from the donor"
    assert any(map(any, [devices.memory(undisturbed, "external.valid")["external.valid"]])), "something came"


def test_a_power_cut_takes_no_answer_back(pictures, task, tmp_path, shared):
    """What was shown before the cut is recorded after it, and the device goes on with the next picture."""
    tool = shared / "tools/lossyfs.py"
    if not tool.exists():
        pytest.skip("needs the file system that loses what was not synced")
    with lossy_disk(tool, tmp_path) as disk, server_process(task, tmp_path / "data") as (server, _):
        state, places = disk.mount / "state", (pictures[0].parent,)
        shown: list[str] = []
        for cut in range(2):
            with devices.start_device(server, state, "cut", *places) as process:
                wait_until(lambda known=process: len(known.so_far().stdout.splitlines()) >= 40, "some lines", process)
                process.kill()
                shown += [line for line in process.so_far().stdout.splitlines(keepends=True) if line.endswith("\n")]
            disk.cut_power()
            disk.start(cut + 2)
            assert set(map(str.rstrip, shown)) <= set(devices.result_lines(state))
        devices.run_device(server, state, "cut", *places)
        assert [answer["file"] for answer in devices.results(state)] == [str(path) for path in pictures]
