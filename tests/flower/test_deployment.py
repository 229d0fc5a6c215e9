"""A real deployment on loopback, with TLS, keys, kills and restarts: nothing that was acknowledged is lost."""

import json
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from devices import ENCODER, results
from latte.edge.device.device import DeviceLoop
from latte.edge.device.record import DeviceRecord, Source
from latte.edge.joining import new_member
from latte.encoders import load_encoder
from latte.methods import describe
from latte.server.hub.hub import Hub
from latte.server.store.sqlite import SqliteStore
from latte.wire.blocks import AtMost, complete, decode, encode
from latte.wire.messages import SyncRequest
from latte.wire.task import read_task
from made_once import made_once
from waiting import SUPPORT, run

pytest.importorskip("flwr", reason="needs the extra flower: pip install '.[flower]'")

pytestmark = pytest.mark.slow
for tool in ("openssl", "ssh-keygen"):
    if shutil.which(tool) is None:
        pytest.skip(f"needs {tool}", allow_module_level=True)

PARTS = (1, 0, 0, 2, 0, 1, 0)  # who sees four pictures and syncs, in this order; node 0 sees two more at the end


def lonely() -> tuple[str, ...]:
    """Return the words before a command that runs it without any network but loopback, where that is possible."""
    words = ("unshare", "--user", "--map-root-user", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")
    try:
        possible = subprocess.run([*words, "true"], capture_output=True).returncode == 0
    except OSError:
        possible = False
    return words if possible else ()


@pytest.fixture(scope="module")
def story(tmp_path_factory):
    def tell(folder):
        adopt, story = SUPPORT / "adopt.py", SUPPORT / "flower_story.py"
        run(*lonely(), sys.executable, adopt, sys.executable, story, folder, check=True)

    folder = made_once(tmp_path_factory, "story", tell)
    return folder, json.loads((folder / "story.json").read_text())


def test_every_node_has_synced_and_nothing_acknowledged_is_lost(story):
    _, facts = story
    assert len(facts["acknowledged"]) == 3
    for name, version in facts["acknowledged"].items():
        assert facts["stored"][name] >= version, facts


def test_the_answers_are_those_of_a_clean_run(story, tmp_path):
    folder, facts = story
    expected = clean_run(folder, facts["ids"], tmp_path)
    for node in range(3):
        got = results(folder / f"device{node}-state", "time")
        assert [(line["number"], line["label"], line["probability"]) for line in got] == expected[node]


def clean_run(folder, ids, tmp_path):
    """Return what the devices answer where nothing goes wrong, in one process: number, label, probability."""
    task = read_task(folder / "federation.task")
    hub, encoder = Hub(task, SqliteStore(tmp_path / "store")), load_encoder(ENCODER, 1)
    members = [
        DeviceLoop(encoder, task, new_member(task), DeviceRecord(tmp_path / str(node), task.fingerprint))
        for node in range(3)
    ]
    answers = {node: [] for node in range(3)}
    for turn, node in enumerate(PARTS):
        see(folder, members, answers, node, 4)
        sync(hub, members[node], ids[str(node)], turn + 1)
    see(folder, members, answers, 0, 2)
    for member in members:
        member.record.close()
    hub.store.close()
    return answers


def see(folder, members, answers, node, count):
    from latte.encoders import open_picture

    for _ in range(count):
        number = len(answers[node])
        path = folder / f"pictures{node}" / f"{100 * node + number:05}.png"
        picture = members[node].encoder.preprocess(open_picture(path))
        line = members[node].answer(Source(str(path)), picture)
        answers[node].append((line.number, line.answer.label, line.answer.probability))


def sync(hub, member, name, version):
    task = hub.task
    blocks = encode(member.method.summary(), "exact", task.zero_shot.dim)
    (reply,) = hub.run([SyncRequest(task.fingerprint, name, version=version, upload=blocks, precision="exact")])
    download = complete(reply.download, AtMost(1 << 30), {})
    member.method.receive(decode(download, describe(task.method).kind.Download, task.zero_shot.fingerprint))


def test_an_unknown_key_is_refused_with_one_line(story):
    _, facts = story
    lines = [line for line in facts["superlink"] if "No SuperNode found with the given public key" in line]
    assert len(lines) == 1
    assert "SuperNode ID" not in facts["stranger"]


def test_nothing_is_left_running(story):
    folder, _ = story
    assert processes_of(folder / "deployment" / "flwr") == []


def processes_of(home):
    """Return every process of a deployment: those that have the folder of its Flower in their environment."""
    mark, found = f"FLWR_HOME={home}\0".encode(), []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if mark in path.read_bytes():
                found.append((path.parent / "cmdline").read_text())
    return found
