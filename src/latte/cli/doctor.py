"""``latte doctor``: what this installation can do, and how to get the rest."""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import click

from ..data.catalogue import FILE_SUFFIXES, data_folder
from ..encoders import ENCODER_PACKAGES, MODELS, kind_of
from ..encoders.devices import ONNXRUNTIMES, list_devices
from ..errors import pip_line, requirements_of
from ..version import __version__
from .options import JSON
from .output import line, print_rows

_LOOPS = {
    "compiled": "compiled: long runs of Latte are fast from the first second",
    "not compiled yet": "not compiled yet: the first long run does so, about 40 s, once",
    "missing": "numba is missing: runs of Latte use the readable simulator, which is 50 times slower",
}
EXTRA_USES = {
    "onnx": "classify and embed with onnx: encoders",
    "torch": "hf: and openclip: encoders, TPT",
    "export": "latte export",
    "data": "images of datasets",
    "report": "latte paper figure, latte paper theory",
    "fast": "the engine: Latte 50 times faster",
    "cluster": "--executor dask:ADDRESS",
    "http": "latte edge (with onnx), HttpExchange",
    "serve": "latte serve, latte demo --fleet",
    "postgres": "latte serve --store postgresql://...",
    "flower": "the Flower app",
}
VARIABLES = {
    "LATTE_DATA": "folder of embedding files",
    MODELS: "folder of model folders: onnx:NAME is then enough",
    "LATTE_ENCODER": "what --encoder is by default",
    "LATTE_DEVICE": "what --device is by default, and where TPT tunes prompts",
    "LATTE_STATE": "folder of the record of a device, the default of --state",
    "LATTE_SERVER": "address of a fleet's server, the default of --server",
}
_PIP_NAMES = {"PIL": "pillow", "open_clip": "open_clip_torch"}  # where they differ from the module's
# how to get an encoder of each kind
ENCODER_ADVICE = {
    "onnx": "latte export hf:ID DIR, on a machine with the extra export; then copy DIR",
    "hf": "a model of the hub (hf:openai/clip-vit-base-patch16), or a folder of one",
    "openclip": "pip install open_clip_torch; then openclip:ViT-B-16/openai",
}


@click.command()
@JSON
def doctor(as_json: bool) -> None:
    """Show what is installed, what is missing, and how to get it.

    That is: the extras, the engine, embedding files, and encoders.
    """
    state = inspect_installation()
    if as_json:
        line(json.dumps(state))
        return
    line(f"latte {state['version']}, Python {state['python']}, {state['system']}, {state['cores']} cores")
    line("")
    rows, missing = [], [extra for extra in state["extras"] if not is_complete(extra)]
    for extra in state["extras"]:
        there = [f"{name} {found}" for name, found in extra["packages"].items() if found]
        absent = [name for name, found in extra["packages"].items() if found is None]
        packages = f"without {', '.join(absent) or 'an installation to ask'}" if extra in missing else ", ".join(there)
        shown = {"extra": extra["name"], "state": "missing" if extra in missing else "ok", "for": extra["use"]}
        rows.append({**shown, "packages": packages})
    print_rows(rows, False)
    line("")
    rows = []
    for encoder in state["encoders"]:
        kind, absent = encoder["kind"], encoder["missing"]
        shown = {"encoder": f"{kind}:", "state": f"needs {', '.join(absent)}" if absent else "ok"}
        models = " ".join(f"{kind}:{name}" for name in encoder["models"]) or None
        rows.append({**shown, "how to get one": encoder["advice"], "in $LATTE_MODELS": models})
    print_rows(rows, False)
    line("")
    line(f"engine: {_LOOPS[state['loops']]}")
    for library, names in state["devices"].items():
        line(f"devices of {library}: {', '.join(names)} (--device auto takes the first that starts)")
    files = f"{len(state['benchmarks'])} embedding files" if state["benchmarks"] else "no embedding files yet"
    line(f"data folder: {state['data']}, {files} (latte data list; latte embed makes them)")
    for name, value in state["variables"].items():
        line(f"{name}: {'not set' if value is None else value} ({VARIABLES[name]})")
    if missing:
        line("")
    for extra in missing:
        line(f"for {extra['name']}: {extra['install']}")


def is_complete(extra: dict[str, Any]) -> bool:
    """Return whether every package of an extra is there; False if this package was not installed: none is known."""
    return bool(extra["packages"]) and None not in extra["packages"].values()


def inspect_installation() -> dict[str, Any]:
    """Look at this installation; nothing is changed, and no model is loaded.

    ``packages`` of an extra have their installed version, None where they are missing. ``loops`` are "compiled",
    "not compiled yet" or "missing". ``models`` of an encoder are those in $LATTE_MODELS. torch and
    ONNX Runtime are imported, because only they know the devices.
    """
    from ..engine import has_loops

    loops = "missing"
    if has_loops():
        from ..engine.cache import are_loops_ready

        loops = "compiled" if are_loops_ready() else "not compiled yet"
    folder, extras = data_folder(), []
    for name, use in EXTRA_USES.items():
        packages: dict[str, str | None] = {}
        for requirement in requirements_of(name):
            package = re.split(r"[<>=!~\[ ]", requirement, maxsplit=1)[0]
            packages[package] = _installed(package)
        extras.append({"name": name, "use": use, "packages": packages, "install": pip_line(name)})
    return {
        "version": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count() or 1,
        "extras": extras,
        "loops": loops,
        "data": str(folder),
        "benchmarks": sorted(path.name for path in folder.glob("*") if path.suffix in FILE_SUFFIXES),
        "encoders": [_encoder(kind) for kind in ENCODER_PACKAGES],
        "devices": list_devices(),
        "variables": {name: os.environ.get(name) for name in VARIABLES},
    }


def _installed(package: str) -> str | None:
    """Return the version of a package, or of another that brings the same module."""
    for name in (package, *(ONNXRUNTIMES.values() if package == "onnxruntime" else ())):
        try:
            return version(name) if name == package else f"{version(name)} ({name})"
        except PackageNotFoundError:
            continue
    return None


def _encoder(kind: str) -> dict[str, Any]:
    packages = [*ENCODER_PACKAGES[kind][0], *(["open_clip"] if kind == "openclip" else [])]
    missing = [_PIP_NAMES.get(one, one) for one in packages if importlib.util.find_spec(one) is None]
    home = Path(os.environ.get(MODELS, "nowhere"))
    folders = sorted(item for item in home.iterdir() if item.is_dir()) if MODELS in os.environ and home.is_dir() else []
    models = [folder.name for folder in folders if kind_of(folder) == kind]
    return {"kind": kind, "missing": missing, "models": models, "advice": ENCODER_ADVICE[kind]}
