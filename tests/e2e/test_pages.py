"""Every console block of README.md and docs/ is run on small material, page by page and in order.

Commands are run as they are written: the models are a tiny ONNX folder, the bundled benchmarks are small ones, and the
addresses are those of the servers that the page starts. What is not run is on one of two lists, with its reason.
"""

import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import devices
import tiny_onnx
from command_lines import unknown_options
from latte.data import catalogue
from postgres import running_postgres
from serving import server_process
from small_benchmark import small_file
from waiting import ROOT, latte, run, running, wait_until

ALL = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in ALL}
PAGES = {name: text for name, text in PAGES.items() if "```console\n" in text}
NOT_RUN = {  # a part of the command, and the reason
    "pip install": ".ci/run installs the package and its extras in fresh environments",
    "latte demo": "test_demo.py and test_fleet_demo.py run it and compare what it prints",
    "latte export": "needs a model of the hub; tests/encoders/test_export.py exports small ones",
    "openclip:": "needs open_clip and its weights; tests/encoders/test_open_clip.py has a stand-in",
    "latte edge review": "serves a page until it is stopped; tests/e2e/test_review.py opens it in a browser",
    "latte paper table": "needs the paper's encoders; tests/report/test_paper.py has small ones",
    "flwr run": "needs the extra flower; tests/flower/test_example_app.py runs it",
}
ELSEWHERE = {  # pages that another test runs in order, the last three with what they show
    "docs/protocol.md": "serve/test_protocol_page.py",
    "docs/own-method.md": "e2e/test_tutorials.py",
    "docs/tutorials/compare-methods.md": "e2e/test_tutorials.py",
    "docs/tutorials/your-own-data.md": "e2e/test_tutorials.py",
}
BEFORE = {"docs/teach.md": "docs/edge.md"}  # a page that goes on where another one ended
LONG = ("deploy", "edge", "experiments", "pictures", "security", "teach")  # seconds each
SLOW = {f"docs/{name}.md" for name in LONG}
RUN_HERE = [pytest.param(page, marks=[pytest.mark.slow] * (page in SLOW)) for page in PAGES if page not in ELSEWHERE]
ADDRESS = re.compile(r"https?://(?:127\.0\.0\.1|latte\.example\.org):8420")
DATABASE = "postgresql://latte@db.example.org/latte"


def lines(page: str) -> Iterator[str]:
    """Yield the commands of a page in order."""
    for block in re.findall(r"```console\n(.*?)```", PAGES[page], re.DOTALL):
        yield from (part.strip() for line in block.replace("\\\n", " ").splitlines() for part in line.split("&&"))


def is_run(line: str) -> bool:
    return not any(part in line for part in NOT_RUN)


def test_the_lists_name_what_is_there():
    commands = [line for page in PAGES for line in lines(page)]
    assert [part for part in NOT_RUN if not any(part in line for line in commands)] == []
    for page, test in ELSEWHERE.items():
        name = page.rpartition("/")[2]
        assert page not in PAGES or name in (ROOT / "tests" / test).read_text("utf-8"), f"{test} does not run {page}"


def test_the_program_knows_what_is_not_run():
    words = [shlex.split(line) for page in PAGES for line in lines(page) if not is_run(line)]
    unknown = {shlex.join(line): unknown_options(line[1:]) for line in words if line[0] == "latte"}
    assert {line: options for line, options in unknown.items() if options} == {}


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with what readers have: image files, a model, class names, labels, a certificate."""
    for name in ("clip-b16", "model"):
        (tmp_path / name).symlink_to(tiny_onnx.FOLDER)
    for first, folder in enumerate(("photos", "photos/one", "photos/two", "pictures")):
        for path in devices.write_pictures(tmp_path / folder, 6, first=100 * first):
            path.rename(path.with_name(f"IMG_{int(path.stem) % 100 + 1:04}.jpg"))
    for domain in ("art_painting", "cartoon", "photo", "sketch"):
        for name in ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person"):
            (place := tmp_path / "data" / "PACS" / domain / name).mkdir(parents=True)
            devices.write_pictures(place, 1)
    shutil.copy(tmp_path / "pictures" / "IMG_0001.jpg", tmp_path / "photo.jpg")
    (tmp_path / "labels.csv").write_text("file,label\nphotos/two/IMG_0002.jpg,horse\n")
    (tmp_path / "classes.txt").write_text("cat\ndog\npolar bear\n")
    (tmp_path / "config.toml").write_text('benchmark = "pacs-demo"\n[[methods]]\nname = "latte"\n')
    small_file(tmp_path, "pictures")
    small = {name: small_file(tmp_path, name, seed) for seed, name in enumerate(catalogue.BUNDLED)}
    monkeypatch.setattr(catalogue, "BUNDLED", small)
    return tmp_path


class Reader:
    """Somebody who does what a page says; one server runs at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.stack, self.server = folder, ExitStack(), ExitStack()
        self.address, self.database, self.serving = "", "", list[str]()

    def __enter__(self) -> "Reader":
        return self

    def __exit__(self, *_: object) -> None:
        self.server.close()
        self.stack.close()

    def do(self, line: str) -> None:
        """Do what a line says."""
        words = [self.as_here(word) for part in shlex.split(line) for word in self.expanded(part)]
        if words[0] == "python":
            if (ROOT / words[1]).is_file():  # a release has no benchmarks/
                run(sys.executable, ROOT / words[1], *words[2:], cwd=self.folder, check=True)
            return
        assert words[0] == "latte", f"{line!r} is neither run nor on a list"
        if words[1] == "serve":
            self.serve(words[2:])
        elif words[1] == "edge" and "--watch" in words:
            self.watch(words[1:])
        else:
            own = self.address.startswith("https") and self.address in words  # a certificate of our own
            done = latte(*words[1:], *["--server-ca", "fullchain.pem"] * own, cwd=self.folder)
            fine = (0, 3) if words[1:3] == ["edge", "status"] else (0,)  # 3: of a device that does not run
            assert done.returncode in fine, (line, done.stderr)

    def expanded(self, word: str) -> list[str]:
        """Return the names that a word with * stands for."""
        found = sorted(self.folder.glob(word)) if "*" in word else []
        return [path.relative_to(self.folder).as_posix() for path in found] or [word]

    def as_here(self, word: str) -> str:
        """Return a word of a page as it is here."""
        if DATABASE in word and not self.database:
            self.database = self.stack.enter_context(running_postgres()).new_schema()
        word = ADDRESS.sub(self.address, word).replace(DATABASE, self.database)
        word = {"0.0.0.0": "127.0.0.1", "/var/lib/latte": "latte"}.get(word, word)
        return "onnx:model" if word.startswith("hf:") else word

    def serve(self, words: list[str]) -> None:
        """Start a server. One with another store is only tried, and the first one comes back."""
        before = self.serving if "--store" in words else []
        self.server.close()
        files = [self.folder / word if (self.folder / word).is_file() else word for word in words]
        place = words.index("--folder")
        options = files[1:place] + files[place + 2 :]
        server = server_process(files[0], self.folder / words[place + 1], *options)
        (self.address, _), self.serving = self.server.enter_context(server), words
        if before:
            self.serve(before)

    def watch(self, words: list[str]) -> None:
        """Run a device that watches a folder until it has recorded every image there."""
        if self.address.startswith("https"):
            words = [*words, "--server-ca", "fullchain.pem"]
        if "--state" not in words:
            words = [*words, "--state", "state"]
        state, images = (self.folder / words[words.index(option) + 1] for option in ("--state", "--watch"))
        with running(sys.executable, "-m", "latte", *words, cwd=self.folder) as device:
            count = len(list(images.rglob("*.jpg")))
            wait_until(lambda: devices.recorded(state) == count, "all images", device)
            devices.end(device)


@pytest.mark.parametrize("page", RUN_HERE)
def test_every_command_of_the_page_works(page, here):
    pytest.importorskip("onnxruntime")
    if "--cert" in PAGES[page]:
        make_certificate(here)
    commands = [line for part in (BEFORE.get(page), page) if part for line in lines(part) if is_run(line)]
    with Reader(here) as reader:
        if not any("latte serve" in line for line in commands) and ADDRESS.search("".join(commands)):
            devices.make_task_file(here)
            reader.serve(["federation.task", "--folder", "server"])
        for line in commands:
            reader.do(line)
        for code in re.findall(r"```python\n(.*?)```", PAGES[page], re.DOTALL):
            if ">>> " not in code:  # pytest runs those
                run_example(code, here, reader.address)
        if page == "docs/deploy.md":  # what the device uploaded is in the backup that was proved
            assert "1 client" in latte("store", "check", "--folder", "proof", cwd=here, check=True).stdout
        if page == "docs/edge.md":
            assert devices.status(here / "two")["labels"]["labelled"] == 2 and devices.recorded(here / "three") == 6


def make_certificate(folder: Path) -> None:
    """Write fullchain.pem and privkey.pem for this machine."""
    if shutil.which("openssl") is None:
        pytest.skip("makes a certificate with openssl")
    names = ("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1")
    new = ("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    run("openssl", *new, *names, "-keyout", "privkey.pem", "-out", "fullchain.pem", cwd=folder, check=True)


def run_example(code: str, folder: Path, address: str) -> None:
    """Run an example as a program of its own; a device gets a token, as the server asks for one."""
    if ", name=" in code:
        token = latte("token", "create", "three", "--folder", "server", cwd=folder, check=True).stdout.strip()
        code = ADDRESS.sub(address, code).replace(', name="three"', f', token="{token}"')
    (folder / "example.py").write_text(code)
    run(sys.executable, "example.py", cwd=folder, check=True)


def test_the_page_of_devices_names_the_numbers_of_the_code():
    from latte.edge.device import device, feeds, record, syncing, watch

    page = re.sub(r"\s+", " ", PAGES["docs/edge.md"])
    assert f"at most {feeds.QUEUE_ROOM} names" in page and f"after every {device.SAVE_EVERY} images" in page
    assert (record.GROUP_PICTURES, record.GROUP_SECONDS) == (64, 10.0)
    assert "up to 64 of them or ten seconds" in page
    assert f"The last {record.HISTORY:,} predictions" in page
    assert (feeds.PICTURES_AHEAD, watch.SETTLED_SECONDS, watch.WRITING_PATIENCE) == (4, 1.0, 10.0)
    assert (syncing.LONGEST_PAUSE, syncing.FIRST_PAUSE) == (300.0, 1.0)
    assert (watch.CLOSED_SECONDS, watch.MOST_TRIES, feeds.NAMED_TRIES) == (0.3, 8, 3)
