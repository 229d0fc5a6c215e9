"""The files of deploy/: units that systemd accepts and under which the programs work; images, containers."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from ctypes.util import find_library
from pathlib import Path
from textwrap import dedent

import pytest
import yaml
from packaging.requirements import Requirement

from command_lines import unknown_options
from devices import ENCODER, end, make_task_file, recorded, said, write_pictures
from waiting import run, running, wait_until

DEPLOY = Path(__file__).parent.parent / "deploy"
UNITS = sorted(DEPLOY.glob("*.service"))


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_systemd_accepts_the_unit(unit, tmp_path):
    needs_systemd_analyze()
    copy = tmp_path / unit.name
    copy.write_text(unit.read_text().replace("/opt/latte/bin/latte", sys.executable))
    done = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True)
    mine = [line for line in (done.stdout + done.stderr).splitlines() if unit.name in line]
    assert not mine, mine


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_a_unit_gives_the_program_little(unit):
    """`systemd-analyze security`: 0 is nothing, 10 is everything; a unit without a word about it has 9.6."""
    needs_systemd_analyze()
    words = ("systemd-analyze", "security", "--offline=true", "--no-pager", unit)
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert float(re.search(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)[1]) < 4.0, done.stdout


def test_the_programs_work_with_what_their_units_allow(tmp_path):
    """A server and a device with an ONNX encoder, each with the system calls of its unit and no others."""
    needs_systemd_analyze()
    for package in ("onnxruntime", "tokenizers", "PIL"):
        pytest.importorskip(package)
    if find_library("seccomp") is None:
        pytest.skip("needs libseccomp")
    task, pictures = make_task_file(tmp_path), write_pictures(tmp_path / "pictures", 9)
    with running(*with_calls_of("latte-serve", "serve", task, "--folder", tmp_path / "data", "--port", 0)) as server:
        begun = wait_until(lambda: re.search(r"latte serves (\S+)", server.so_far().stdout), "the server", server)
        state, address = tmp_path / "state", begun[1].replace("127.0.0.1", "localhost")  # a name is looked up
        words = ("--server", address, "--state", state, "--encoder", ENCODER, "--watch", pictures[0].parent)
        with running(*with_calls_of("latte-edge", "edge", *words)) as device:
            wait_until(lambda: recorded(state) == 9 and said(state).synced, "nine answers and a sync", device, server)
            end(device)
        end(server)


def with_calls_of(unit, *words):
    """Return the command that runs the program with the system calls that a unit allows."""
    script = DEPLOY.parent / "tests" / "support" / "unit_sandbox.py"
    return (sys.executable, script, DEPLOY / f"{unit}.service", sys.executable, "-m", "latte", *words)


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_a_unit_keeps_out_what_it_says(unit):
    """The filter of the test above refuses: it is not one that lets everything pass."""
    needs_systemd_analyze()
    if find_library("seccomp") is None:
        pytest.skip("needs libseccomp")
    script = """
        import ctypes, mmap, socket, threading
        socket.socket(socket.AF_INET6), mmap.mmap(-1, 4096, prot=3), threading.Thread(target=print).start()
        tries = (lambda: socket.socket(socket.AF_NETLINK), lambda: mmap.mmap(-1, 4096, prot=7))
        for attempt in tries:
            try:
                attempt()
            except PermissionError:
                continue
            raise SystemExit("allowed")
        library = ctypes.CDLL(None)
        assert library.unshare(0x10000000) == library.mount(b"none", b"/mnt", b"tmpfs", 0, None) == -1
    """
    run(
        sys.executable,
        DEPLOY.parent / "tests" / "support" / "unit_sandbox.py",
        unit,
        sys.executable,
        "-c",
        dedent(script),
        check=True,
    )


def needs_systemd_analyze():
    if shutil.which("systemd-analyze") is None:
        pytest.skip("needs systemd-analyze")


def compose():
    """Return the document, with its anchors and merges resolved."""
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text())


def command_lines():
    """Yield every call of the program in deploy/, as words behind ``latte``."""
    for unit in UNITS:
        text = unit.read_text().replace("\\\n", " ")
        yield shlex.split(re.search(r"^ExecStart=\S+ (.*)$", text, re.M)[1])
    for name, service in compose()["services"].items():
        if name.startswith(("server", "device")):
            yield shlex.split(service["command"])
            if (check := service["healthcheck"]["test"])[1] == "latte":
                yield check[2:]


@pytest.mark.parametrize("words", list(command_lines()), ids=lambda words: words[0])
def test_the_program_knows_every_option(words):
    assert unknown_options(words) == set()


def test_compose_has_what_the_page_says():
    assert list(compose()["services"]) == [
        "database", "token", "server-1", "server-2", "device-1", "device-2", "device-3",
    ]  # fmt: skip


def test_every_service_of_compose_that_stays_has_a_health_check_and_a_volume_with_a_name():
    document = compose()
    for name, service in document["services"].items():
        if name == "token":
            continue
        named = [each.split(":")[0] for each in service["volumes"] if isinstance(each, str) and each[0] != "."]
        assert named == [name] and name in document["volumes"]
        assert service["healthcheck"]["test"][0] == "CMD"
    assert "-h" in document["services"]["database"]["healthcheck"]["test"]


def test_folders_of_the_host_can_be_read_under_selinux_and_a_device_sees_its_own_token_only():
    for name, service in compose()["services"].items():
        secrets = []
        for each in service["volumes"]:
            if isinstance(each, str):
                source, _, options = each.split(":") if each.count(":") == 2 else (*each.split(":"), "")
                assert "z" in options.split(",") or not source.startswith("."), each
            else:
                source = each["source"]
                assert each["bind"] == {"selinux": "z", "create_host_path": False}, each
            if "secrets" in source:
                secrets.append(source)
        wanted = {"token": ["./secrets"]}
        assert secrets == wanted.get(name, [f"./secrets/{name}.token"] if name.startswith("device") else [])


@pytest.mark.parametrize(
    "words",
    [
        ("hadolint", DEPLOY / "Containerfile"),
        ("check-jsonschema", "--builtin-schema", "vendor.compose-spec", DEPLOY / "compose.yaml"),
    ],
    ids=lambda words: words[0],
)
def test_a_linter_finds_nothing(words):
    program = Path(sys.executable).with_name(words[0])
    if not program.exists():
        pytest.skip(f"needs {words[0]}")
    done = run(program, *words[1:])
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_image_pins_every_package_that_it_asks_for():
    """The versions of constraints.txt are those that pyproject.toml allows; none is missing."""
    lines = (DEPLOY / "constraints.txt").read_text().splitlines()
    again = next(line for line in lines if "uv pip compile" in line)
    pinned = {}
    for line in lines:
        if line and not line.startswith("#"):
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate({"python_version": "3.11", "extra": ""}):
                pinned[requirement.name.lower()] = str(requirement.specifier).removeprefix("==")
    project = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())["project"]
    install = re.search(r"\.\[([a-z,]+)\]", (DEPLOY / "Containerfile").read_text())[1].split(",")
    assert re.findall(r"--extra (\S+)", again) == install
    asked, left = list(project["dependencies"]), list(install)
    while left:
        for text in project["optional-dependencies"][left.pop()]:
            requirement = Requirement(text)
            if requirement.name == project["name"]:
                left.extend(requirement.extras)
            else:
                asked.append(text)
    for requirement in map(Requirement, dict.fromkeys(asked)):
        assert pinned.get(requirement.name.lower(), "0") in requirement.specifier, f"{requirement}: run {again}"


def test_an_image_is_built_from_the_package_alone():
    """The ignore file allows what the Containerfile copies, and nothing else: above all no tokens."""
    lines = (DEPLOY.parent / ".dockerignore").read_text().splitlines()
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", (DEPLOY / "Containerfile").read_text(), re.M)
    assert "*" in lines
    assert {line[1:] for line in lines if line.startswith("!")} == {path for line in copied for path in line.split()}


def test_the_devices_of_compose_may_read_their_tokens(tmp_path):
    """A token file is for its owner's eyes, and the devices do not run as root."""
    service = compose()["services"]["token"]
    assert service["user"] == "root"
    (script,) = service["command"]
    script = script.replace("$$", "$")
    calls = tmp_path / "calls"
    for name in ("latte", "chown"):
        (tmp_path / name).write_text(
            f"""#!/bin/sh
echo {name} "$@" >> {calls}
for last; do :; done
[ {name} = chown ] || touch "$last"
"""
        )
        (tmp_path / name).chmod(0o755)
    run("sh", "-c", script.replace("/secrets", str(tmp_path)), check=True, PATH=f"{tmp_path}:{os.environ['PATH']}")
    made, given = [], []
    for words in map(shlex.split, calls.read_text().splitlines()):
        (made if words[0] == "latte" else given).append(words)
    assert [words[3] for words in made] == ["--admin", "device-1", "device-2", "device-3"]
    user = re.search(r"^USER (\d+):\d+$", (DEPLOY / "Containerfile").read_text(), re.M)[1]
    assert given == [["chown", user, *(str(tmp_path / f"device-{number}.token") for number in (1, 2, 3))]]
