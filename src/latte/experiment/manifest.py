"""Where and when a run was made: what explains the numbers but does not decide them."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..version import __version__
from .plan import Plan

_GIT_SECONDS = 60.0  # a repository on a disk that hangs must not hold up a run
_PACKAGES = ("numpy", "safetensors", "click", "cattrs", "scipy", "numba", "torch", "onnxruntime")


def describe_session(command: tuple[str, ...], jobs: int) -> dict[str, Any]:
    """Return the state of this machine and process at the start of a session."""
    return {
        "started": now(),
        "ended": None,
        "command": list(command),
        "versions": versions(),
        "git": {"latte": git_state(Path(__file__).parent), "here": git_state(Path.cwd())},
        "machine": {"system": platform.platform(), "cpu": cpu_name(), "cores": os.cpu_count()},
        "jobs": jobs,
        "threads_per_job": 1,
    }


def describe_run(plan: Plan) -> dict[str, Any]:
    """Return the part of a manifest that describes the run itself."""
    return {
        "run": plan.name,
        "benchmark": plan.config.benchmark,
        "data": {
            "path": str(plan.entry.path),
            "sha256": plan.data.sha256,
            "fingerprint": plan.data.fingerprint,
            "encoder": plan.data.encoder,
        },
        "seeds": list(plan.config.seeds),
        "sources": dict(plan.sources),
    }


def manifest(plan: Plan, before: Mapping[str, Any], session: Mapping[str, Any]) -> dict[str, Any]:
    """Return the manifest with one more session; a resumed run has several."""
    earlier = before.get("sessions")
    sessions = list(earlier) if isinstance(earlier, list) else []
    return {**describe_run(plan), "sessions": [*sessions, dict(session)]}


def now() -> str:
    """Return the time as text, in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def versions() -> dict[str, str]:
    """Return the versions of Python, of this package and of what it computes with, where installed."""
    installed = {"python": sys.version.split()[0], "latte-tta": __version__}
    for package in _PACKAGES:
        try:
            installed[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return installed


def git_state(folder: Path) -> dict[str, Any] | None:
    """Return the commit of ``folder`` and whether anything is changed (None: unknown); None without git."""
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None:
        return None
    status = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return {"commit": commit, "changed": None if status is None else bool(status)}


def _git(folder: Path, *arguments: str) -> str | None:
    command = ["git", *arguments]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_GIT_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def cpu_name() -> str:
    """Return the name of the processor as well as the system knows it."""
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
