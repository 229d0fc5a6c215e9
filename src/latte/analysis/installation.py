"""What this installation can do, and how to get the rest: extras, the engine, the data folder, encoders."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
from dataclasses import dataclass
from pathlib import Path

from ..core.extras import pip_line, requirements_of
from ..data.catalogue import FILE_SUFFIXES, data_folder
from ..encoders import ENCODER_PACKAGES, MODELS
from ..version import __version__

EXTRA_USES = {
    "onnx": "classify and embed with onnx: encoders",
    "torch": "hf: and openclip: encoders, TPT",
    "export": "latte export, TPT on onnx: encoders",
    "data": "pictures of datasets",
    "report": "latte figure, latte theory",
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
    "LATTE_STATE": "folder of the record of a device, the default of --state",
    "LATTE_SERVER": "address of the server of a federation, the default of --server",
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
    variables: dict[str, str | None]


def inspect_installation() -> Installation:
    """Look at this installation; nothing is changed, and no model is loaded."""
    folder = data_folder()
    return Installation(
        version=__version__,
        python=platform.python_version(),
        system=f"{platform.system()} {platform.machine()}",
        cores=os.cpu_count() or 1,
        extras=tuple(_extra(name, use) for name, use in EXTRA_USES.items()),
        loops=_loops(),
        data=str(folder),
        benchmarks=tuple(sorted(path.name for path in folder.glob("*") if path.suffix in FILE_SUFFIXES)),
        encoders=tuple(_encoder(kind) for kind in ENCODER_PACKAGES),
        variables={name: os.environ.get(name) for name in VARIABLES},
    )


def _extra(name: str, use: str) -> ExtraState:
    names = [re.split(r"[<>=!~\[ ]", requirement, maxsplit=1)[0] for requirement in requirements_of(name)]
    return ExtraState(name, use, {package: installed_version(package) for package in names}, pip_line(name))


def installed_version(package: str) -> str | None:
    """Return the version of an installed package; None where it is missing.

    >>> installed_version("no-such-package") is None
    True
    """
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _loops() -> str:
    from ..simulation.engine import has_loops

    if not has_loops():
        return "missing"
    from ..simulation.engine.kernels import are_loops_ready  # imports numba

    return "compiled" if are_loops_ready() else "not compiled yet"


def _encoder(kind: str) -> EncoderState:
    packages = [*ENCODER_PACKAGES[kind][0], *(["open_clip"] if kind == "openclip" else [])]
    absent = [package for package in packages if importlib.util.find_spec(package) is None]
    missing = tuple(_PIP_NAMES.get(package, package) for package in absent)
    home = os.environ.get(MODELS)
    return EncoderState(kind, missing, _models(Path(home), kind) if home else (), ENCODER_ADVICE[kind])


def _models(home: Path, kind: str) -> tuple[str, ...]:
    """Return the names of the model folders of one kind."""
    from ..encoders import kind_of

    folders = sorted(item for item in home.iterdir() if item.is_dir()) if home.is_dir() else []
    return tuple(folder.name for folder in folders if kind_of(folder) == kind)
