"""The review page in a real browser: what somebody labels there changes what other devices answer; a class joins."""

import re
import shutil
import sys
from contextlib import closing

import numpy as np
import pytest

import devices
from devices import end, run_device, write_pictures
from latte.core.sync import sync
from latte.core.types import TeachingRights
from latte.edge.device.labels import count_taught
from latte.edge.device.record import open_to_read
from latte.edge.joining import new_member
from latte.encoders import load_encoder, open_picture
from latte.server.hub.hub import served_exchange
from latte.wire.task import read_task
from serving import server_process
from waiting import latte, running, wait_until

pytest.importorskip("onnxruntime")
playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
BROWSER = next((path for name in ("chromium", "google-chrome") if (path := shutil.which(name))), None)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="needs a Chromium browser on the path"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:playwright"),
]
LABELS = 20
PATIENCE = 120_000  # milliseconds
EXACT = ("--precision", "exact")


@pytest.fixture
def page(tmp_path):
    """A page in a browser, and the messages of its console."""
    with playwright.sync_playwright() as program:
        browser = program.chromium.launch(executable_path=BROWSER, args=["--no-sandbox", "--disable-gpu"])
        made = browser.new_page(viewport={"width": 390, "height": 844})
        made.set_default_timeout(PATIENCE)
        yield made
        browser.close()


def label_on_the_page(page, address):
    """Label pictures with the keys of their classes in turn, one of them after a mistake; return file -> class."""
    errors = []
    page.on("pageerror", lambda error: errors.append(error))
    page.goto(address)
    given = {}
    counts, shown = (playwright.expect(page.locator(place)) for place in ("#counts", "#name"))
    for number in range(LABELS):
        counts.to_contain_text(f"{number} labelled", timeout=PATIENCE)
        name, place = page.text_content("#name"), number % 3
        if number == 2:  # the wrong key, and back
            page.keyboard.press("1")
            counts.to_contain_text(f"{number + 1} labelled", timeout=PATIENCE)
            page.keyboard.press("ArrowLeft")
            shown.to_have_text(name, timeout=PATIENCE)
        page.keyboard.press(str(place + 1))
        given[name] = place
    counts.to_contain_text(f"{LABELS} labelled", timeout=PATIENCE)
    page.keyboard.press("0")
    counts.to_contain_text(f"{LABELS + 1} labelled", timeout=PATIENCE)
    assert not errors
    return given


def taught(state):
    with closing(open_to_read(state)) as database:
        return count_taught(database)


def test_what_is_labelled_on_one_device_changes_the_answers_of_another_as_in_one_process(tmp_path, page):
    file = devices.make_task_file(tmp_path)
    mine = write_pictures(tmp_path / "mine", 24)
    first, *later = write_pictures(tmp_path / "theirs", 25, first=100)
    one, two, three = (tmp_path / name for name in ("one", "two", "three"))
    with server_process(file, tmp_path / "data") as (server, _):
        run_device(server, one, "one", *EXACT, *mine)
        command = (sys.executable, "-m", "latte", "edge", "review", "--state", one, "--port", 0)
        with running(*command) as process:
            said = wait_until(lambda: re.search(r"review: (\S+)\n", process.so_far().stdout), "the address", process)
            given = label_on_the_page(page, said[1])
            end(process)
        assert taught(one) == 0, "the device does not run"
        run_device(server, one, "one", *EXACT, "--from", "/dev/null")
        assert taught(one) == LABELS
        run_device(server, one, "one", *EXACT, "--from", "/dev/null")
        assert taught(one) == LABELS, "nothing is learnt twice"
        for name, state in (("two", two), ("three", three)):
            run_device(server, state, name, *EXACT, first)  # it gets what one was taught
    expected, untaught = (in_one_process(file, mine, first, later, labels) for labels in (given, {}))
    for place, (name, state) in enumerate((("two", two), ("three", three))):
        run_device(server, state, name, *EXACT, *later)  # the server is away: all that changes answers is known
        answers = [(line["label"], line["probability"]) for line in devices.results(state)[1:]]
        assert [label for label, _ in answers] == [label for label, _ in expected[place]]
        np.testing.assert_allclose([p for _, p in answers], [p for _, p in expected[place]], rtol=1e-4)
    assert expected != untaught, "the labels change something"
    assert f"{LABELS} labels learnt" in latte("edge", "status", "--state", one).stdout


def in_one_process(file, mine, first, later, given):
    """Return what devices two and three answer, made with methods and an exchange; nobody has the right to teach."""
    task, encoder = read_task(file), load_encoder(devices.ENCODER)

    def row(path):
        return encoder.images([encoder.preprocess(open_picture(path))])[0]

    exchange = served_exchange(task)
    exchange.grant(TeachingRights(frozenset()))
    one, *others = (new_member(task) for _ in range(3))
    for path in mine:
        one.predict(row(path)[None])
    for path in mine:
        if path.name in given:
            one.correct(row(path), given[path.name])
    for _ in range(2):  # it ran twice; since the first download it knows that the fleet has labels
        sync([("one", one)], exchange)
    for name, member in zip(("two", "three"), others, strict=True):
        member.predict(row(first)[None])
        sync([(name, member)], exchange)
    predictions = [[member.predict(row(path)[None]) for path in later] for member in others]
    return [[(each.classname, each.probability) for each in answered] for answered in predictions]
