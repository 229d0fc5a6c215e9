"""Start a whole deployment on this machine: a SuperLink with TLS, and SuperNodes with keys.

python loopback.py FOLDER --task federation.task --nodes 3

It makes an authority, a certificate and keys in FOLDER, starts everything on 127.0.0.1, starts the run, and prints the
commands that start the devices. Ctrl-C ends it (the ServerApp, which Flower started, some seconds later), and so does
the end of any process that it started; the same command goes on where it ended. Needs openssl and ssh-keygen.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from latte.errors import InputError
from latte.wire.task import read_task

APP = Path(__file__).parent
NAME = "loopback"  # of the connection in Flower's config.toml
OFFLINE = {
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",  # the app's packages are installed already
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
}
_SUBJECT_NAMES = "subjectAltName=DNS:localhost,IP:127.0.0.1"


class Loopback:
    """A deployment in ``folder``: commands, and the files that they need."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port = folder.absolute(), port
        self.address = f"127.0.0.1:{port}"
        self.authority = self.folder / "ca.crt"

    def environment(self) -> dict[str, str]:
        """Return the variables of every process: Flower's own folder is inside the deployment's."""
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        return {**os.environ, **OFFLINE, "FLWR_HOME": str(self.folder / "flwr"), "PATH": path}

    # --- files ------------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Make the certificates, and tell Flower's commands where the SuperLink is."""
        (self.folder / "flwr").mkdir(parents=True, exist_ok=True)
        connection = f'address = "{self.address}"\nroot-certificates = "{self.authority}"\n'
        text = f'[superlink]\ndefault = "{NAME}"\n\n[superlink.{NAME}]\n{connection}'
        (self.folder / "flwr" / "config.toml").write_text(text)
        if not self.authority.exists():
            self._make_certificates()

    def _make_certificates(self) -> None:
        key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
        self._openssl("req", "-x509", *key, "-days", "30", "-subj", "/CN=loopback authority", "-keyout", "ca.key",
                      "-out", "ca.part", "-addext", "keyUsage=critical,keyCertSign,cRLSign")  # fmt: skip
        self._openssl("req", *key, "-subj", "/CN=localhost", "-keyout", "server.key", "-out", "server.csr")
        (self.folder / "server.ext").write_text(f"{_SUBJECT_NAMES}\nextendedKeyUsage=serverAuth\n")
        self._openssl("x509", "-req", "-in", "server.csr", "-CA", "ca.part", "-CAkey", "ca.key", "-CAcreateserial",
                      "-days", "30", "-extfile", "server.ext", "-out", "server.pem")  # fmt: skip
        (self.folder / "ca.part").rename(self.authority)

    def _openssl(self, *words: str) -> None:
        subprocess.run(["openssl", *words], cwd=self.folder, check=True, capture_output=True)

    def make_key(self, node: int) -> Path:
        """Return the private key of a node; the public one is beside it."""
        path = self.folder / f"node{node}"
        if not path.exists():
            words = ("ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", "", "-C", f"node {node}", "-f", str(path))
            subprocess.run(words, check=True)
        return path

    def node_folder(self, node: int) -> Path:
        """Return the folder in which a node meets its device."""
        return self.folder / f"node{node}-state"

    # --- commands ---------------------------------------------------------------------------------------------

    def superlink(self) -> list[str]:
        """Return the command of the SuperLink."""
        tls = ("--ssl-ca-certfile", self.authority, "--ssl-certfile", self.folder / "server.pem",
               "--ssl-keyfile", self.folder / "server.key")  # fmt: skip
        place = ("--host", "127.0.0.1", "--port", self.port, "--database", self.folder / "superlink.db")
        return _words("flower-superlink", *tls, "--enable-supernode-auth", *place)

    def supernode(self, node: int, port: int) -> list[str]:
        """Return the command of a SuperNode, whose own processes meet at ``port``."""
        link = ("--superlink", self.address, "--root-certificates", self.authority)
        key = ("--auth-supernode-private-key", self.make_key(node))
        config = f'partition-id={node} state-dir="{self.node_folder(node)}"'
        return _words("flower-supernode", *link, *key, "--host", "127.0.0.1", "--port", port, "--node-config", config)

    def register(self, node: int) -> list[str]:
        """Return the command that makes the key of a node known."""
        self.make_key(node)
        return _words("flwr", "supernode", "register", self.folder / f"node{node}.pub", NAME)

    def run(self, **config: str | float) -> list[str]:
        """Return the command that starts a run of this app as a fleet."""
        values = {"mode": "fleet", "state": str(self.folder / "exchange"), **config}
        quoted = {name: f'"{value}"' if isinstance(value, str) else value for name, value in values.items()}
        pairs = " ".join(f"{name.replace('_', '-')}={value}" for name, value in quoted.items())
        return _words("flwr", "run", APP, NAME, "--run-config", pairs)


def _words(*words: object) -> list[str]:
    return [str(word) for word in words]


# --- this script ----------------------------------------------------------------------------------------------


class Processes:
    """Processes by name, each in a session of its own; what one prints goes to ``NAME.log``."""

    def __init__(self, deployment: Loopback) -> None:
        self.deployment, self._running = deployment, dict[str, subprocess.Popen[bytes]]()

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._running))

    def start(self, name: str, command: list[str]) -> None:
        """Start a process."""
        with self.log(name).open("ab") as log:
            process = subprocess.Popen(command, env=self.deployment.environment(), stdin=subprocess.DEVNULL,
                                       stdout=log, stderr=log, start_new_session=True)  # fmt: skip
        self._running[name] = process

    def log(self, name: str) -> Path:
        """Return the file with what a process printed."""
        return self.deployment.folder / f"{name}.log"

    def alive(self, name: str) -> bool:
        """Return whether a process has not ended yet."""
        return self._running[name].poll() is None

    def check(self) -> None:
        """End this program if one of them has ended, and say why: the others would wait for it for ever."""
        for name in self:
            if not self.alive(name):
                lines = self.log(name).read_text(errors="replace").splitlines()[-12:]
                code = self._running[name].returncode
                raise SystemExit("\n".join([*lines, f"{name} has ended (exit code {code}): see {self.log(name)}"]))

    def end(self, *names: str, number: int = signal.SIGTERM) -> None:
        """Send a signal to processes and their children; whatever does not end within ten seconds is killed."""
        processes = [self._running.pop(name) for name in names]
        for each in (number, signal.SIGKILL):
            for process in processes:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, each)
            for process in processes:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(10)

    def end_all(self) -> None:
        """End every process, the one that was started last first: nodes say goodbye to a SuperLink that is there."""
        for name in reversed(list(self)):
            self.end(name)


def call(processes: Processes, command: list[str], attempts: int = 60) -> None:
    """Run a command of Flower until it succeeds: the SuperLink may not be there yet."""
    printed = ""
    for _ in range(attempts):
        processes.check()
        done = subprocess.run(command, env=processes.deployment.environment(), capture_output=True, text=True)
        printed = done.stdout + done.stderr
        if done.returncode == 0 or "already" in printed:
            return
        time.sleep(1)
    raise SystemExit(f"{' '.join(command)}: {printed[-2000:]}")


def start_all(processes: Processes, task: Path, nodes: int) -> None:
    """Start the SuperLink, the SuperNodes and the run; print the commands of the devices."""
    deployment = processes.deployment
    processes.start("superlink", deployment.superlink())
    for node in range(nodes):
        call(processes, deployment.register(node))
        processes.start(f"supernode{node}", deployment.supernode(node, deployment.port + 1 + node))
    call(processes, deployment.run(task=str(task.absolute())))
    for node in range(nodes):
        place = f"--server folder:{deployment.node_folder(node)}"
        print(f"latte edge {place} --state DIR --watch PICTURES --encoder ENCODER", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--task", type=Path, required=True, help="what `latte task create` wrote")
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--port", type=int, default=18443, help="of the SuperLink; the nodes take the next ones")
    parser.add_argument("--seconds", type=float, default=0.0, help="end after this time; 0: with Ctrl-C")
    options = parser.parse_args()
    try:
        read_task(options.task)
    except (OSError, InputError) as error:
        parser.error(f"--task: {error}")
    deployment = Loopback(options.folder, options.port)
    deployment.prepare()
    processes = Processes(deployment)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends everything, as Ctrl-C does
    try:
        start_all(processes, options.task, options.nodes)
        end = time.monotonic() + (options.seconds or float("inf"))
        while (left := end - time.monotonic()) > 0:
            processes.check()
            time.sleep(min(left, 1.0))
    except KeyboardInterrupt:
        print("stopping", file=sys.stderr)
    finally:
        processes.end_all()


if __name__ == "__main__":
    main()
