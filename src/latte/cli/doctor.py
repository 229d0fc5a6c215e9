"""``latte doctor``: what this installation can do, and how to get the rest."""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import re
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import click

from ..data.catalogue import FILE_SUFFIXES, data_folder
from ..encoders import ENCODER_PACKAGES, MODELS, kind_of
from ..encoders.devices import list_devices
from ..errors import pip_line, requirements_of
from ..version import __version__
from .options import JSON
from .output import line, print_rows


@click.command()
@JSON
def doctor(as_json: bool) -> None:
    """Say what is installed and what is missing: extras, the engine, data, encoders, and how to get each."""
    state = inspect_installation()
    if as_json:
        line(json.dumps(asdict(state)))
        return
    line(f"latte {state.version}, Python {state.python}, {state.system}, {state.cores} cores")
    line("")
    print_rows([_extra_row(extra) for extra in state.extras], False)
    line("")
    print_rows([_encoder_row(encoder) for encoder in state.encoders], False)
    line("")
    line(f"engine: {_LOOPS[state.loops]}")
    for library, names in state.devices.items():
        line(f"devices of {library}: {', '.join(names)} (--device auto takes the first)")
    files = f"{len(state.benchmarks)} embedding files" if state.benchmarks else "no embedding files yet"
    line(f"data folder: {state.data}, {files} (latte data list; latte embed makes them)")
    for name, value in state.variables.items():
        line(f"{name}: {'not set' if value is None else value} ({VARIABLES[name]})")
    if missing := [extra for extra in state.extras if not extra.complete]:
        line("")
        for extra in missing:
            line(f"for {extra.name}: {extra.install}")


def _extra_row(extra: ExtraState) -> dict[str, object]:
    there = [f"{name} {version}" for name, version in extra.packages.items() if version]
    missing = [name for name, version in extra.packages.items() if version is None]
    state = ", ".join(there) if extra.complete else f"without {', '.join(missing) or 'an installation to ask'}"
    return {"extra": extra.name, "state": "ok" if extra.complete else "missing", "for": extra.use, "packages": state}


def _encoder_row(encoder: EncoderState) -> dict[str, object]:
    models = " ".join(f"{encoder.kind}:{name}" for name in encoder.models)
    return {
        "encoder": f"{encoder.kind}:",
        "state": f"needs {', '.join(encoder.missing)}" if encoder.missing else "ok",
        "how to get one": encoder.advice,
        "in $LATTE_MODELS": models or None,
    }


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


@dataclass(frozen=True, slots=True)
class ExtraState:
    """An extra: its packages by name with the installed version (None: missing), and the command that brings it."""

    name: str
    use: str
    packages: dict[str, str | None]
    install: str

    @property
    def complete(self) -> bool:
        """Whether every package is there; False if this package was not installed, so that they are not known."""
        return bool(self.packages) and None not in self.packages.values()


@dataclass(frozen=True, slots=True)
class EncoderState:
    """A kind of encoder: the packages that are missing, the models of it in $LATTE_MODELS, and how to get one."""

    kind: str
    missing: tuple[str, ...]
    models: tuple[str, ...]
    advice: str


@dataclass(frozen=True, slots=True)
class Installation:
    """Everything at once; ``loops`` is "compiled", "not compiled yet" or "missing"."""

    version: str
    python: str
    system: str
    cores: int
    extras: tuple[ExtraState, ...]
    loops: str
    data: str
    benchmarks: tuple[str, ...]
    encoders: tuple[EncoderState, ...]
    devices: dict[str, tuple[str, ...]]
    variables: dict[str, str | None]


def inspect_installation() -> Installation:
    """Look at this installation; nothing is changed, and no model is loaded.

    torch and ONNX Runtime are imported, because only they know the devices.
    """
    from ..engine import has_loops

    loops = "missing"
    if has_loops():
        from ..engine.cache import are_loops_ready

        loops = "compiled" if are_loops_ready() else "not compiled yet"
    folder = data_folder()
    return Installation(
        version=__version__,
        python=platform.python_version(),
        system=f"{platform.system()} {platform.machine()}",
        cores=os.cpu_count() or 1,
        extras=tuple(_extra(name, use) for name, use in EXTRA_USES.items()),
        loops=loops,
        data=str(folder),
        benchmarks=tuple(sorted(path.name for path in folder.glob("*") if path.suffix in FILE_SUFFIXES)),
        encoders=tuple(_encoder(kind) for kind in ENCODER_PACKAGES),
        devices=list_devices(),
        variables={name: os.environ.get(name) for name in VARIABLES},
    )


def _extra(name: str, use: str) -> ExtraState:
    packages: dict[str, str | None] = {}
    for requirement in requirements_of(name):
        package = re.split(r"[<>=!~\[ ]", requirement, maxsplit=1)[0]
        try:
            packages[package] = version(package)
        except PackageNotFoundError:
            packages[package] = None
    return ExtraState(name, use, packages, pip_line(name))


def _encoder(kind: str) -> EncoderState:
    packages = [*ENCODER_PACKAGES[kind][0], *(["open_clip"] if kind == "openclip" else [])]
    absent = [package for package in packages if importlib.util.find_spec(package) is None]
    missing = tuple(_PIP_NAMES.get(package, package) for package in absent)
    home = Path(os.environ.get(MODELS, ""))
    there = MODELS in os.environ and home.is_dir()
    folders = sorted(item for item in home.iterdir() if item.is_dir()) if there else []
    models = tuple(folder.name for folder in folders if kind_of(folder) == kind)
    return EncoderState(kind, missing, models, ENCODER_ADVICE[kind])
