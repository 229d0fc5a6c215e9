"""Encoders: from pictures and texts to unit rows. ``load_encoder("onnx:DIR")`` returns an :class:`Encoder`.

============================== ==================================================== =====================
name                           what it loads                                        needs the extra
============================== ==================================================== =====================
``onnx:DIR``                   a folder with image.onnx, text.onnx, model.json       ``onnx``
``hf:ID`` or ``hf:DIR``        CLIP or SigLIP of transformers, from the hub or disk  ``torch``
``openclip:MODEL/PRETRAINED``  an open_clip model and its weights                    ``open_clip_torch``
``openclip:hf-hub:ORG/NAME``   the same, from a repository of the hub               ``open_clip_torch``
``local:DIR``                  a folder of any of these kinds, recognised            that of its kind
============================== ==================================================== =====================

``pictures`` opens image files, ``preprocess`` and ``views`` turn them into arrays, ``base`` encodes many files,
``prompts`` makes the zero-shot classifier, ``devices`` says where an encoder can run. ``onnx``, ``hf`` and
``open_clip`` are the three kinds of encoder, ``own`` makes one of any function, ``export`` writes an ONNX folder,
``tuning`` is for prompt tuning. Heavy packages are imported when they are first used.
"""

from __future__ import annotations

import importlib
import os
from pathlib import Path

from ..core.validate import close_names
from ..errors import need, refuse
from ..lazy import lazy_names
from .base import BATCH, BatchProgress, Encoder
from .own import FunctionEncoder, as_encoder
from .pictures import BadImageError, Picture, as_picture, open_picture
from .preprocess import Preprocess
from .prompts import read_descriptions, read_templates, template_sets, zero_shot

TYPE_CHECKING = False  # see latte.lazy
if TYPE_CHECKING:
    from .base import encode_files
    from .export import export_onnx
    from .tuning import make_prompt_tuner
    from .views import ViewPlan, make_views

# Before it is imported, because ONNX Runtime from 1.31 on gives the machine a number, and reports use to its makers.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

__all__ = [
    "BATCH",
    "BadImageError",
    "BatchProgress",
    "Encoder",
    "FunctionEncoder",
    "Picture",
    "Preprocess",
    "ViewPlan",
    "as_encoder",
    "as_picture",
    "check_encoder_spec",
    "encode_files",
    "export_onnx",
    "load_encoder",
    "make_prompt_tuner",
    "make_views",
    "open_picture",
    "read_descriptions",
    "read_templates",
    "template_sets",
    "zero_shot",
]

if not TYPE_CHECKING:  # a type checker reports names that do not exist
    __getattr__, __dir__ = lazy_names(__name__)

ENCODER_LOADERS: dict[str, str] = {
    "onnx": "latte.encoders.onnx:load_onnx",
    "hf": "latte.encoders.hf:load_hf",
    "openclip": "latte.encoders.open_clip:load_open_clip",
}
# the packages of each kind, and the extra that brings them
ENCODER_PACKAGES: dict[str, tuple[tuple[str, ...], str]] = {
    "onnx": (("onnxruntime", "tokenizers", "PIL"), "onnx"),
    "hf": (("torch", "transformers", "PIL"), "torch"),
    "openclip": (("torch", "PIL"), "torch"),
}
FORMS = "onnx:DIR, hf:ID, openclip:MODEL/WEIGHTS or local:DIR"
MODELS = "LATTE_MODELS"  # environment variable: a folder of model folders, so that onnx:NAME is enough
_MARKER_FILES = (("model.json", "onnx"), ("open_clip_config.json", "openclip"), ("config.json", "hf"))


def load_encoder(spec: str, threads: int = 0, device: str = "cpu", precision: str = "fp32") -> Encoder:
    """Return the encoder named ``spec``, such as "onnx:models/mini" or "hf:openai/clip-vit-base-patch16".

    ``threads`` limits the cores (0: all of them). ``device`` is "auto", a device of torch ("cuda") or an execution
    provider of ONNX Runtime; ``precision`` is "fp32", or "bf16" or "fp16" on devices of torch that have it.
    """
    kind, target = split_spec(spec)
    module, _, attribute = ENCODER_LOADERS[kind].partition(":")
    load = getattr(importlib.import_module(module), attribute)
    encoder: Encoder = load(target, threads, device, precision)
    return encoder


def check_encoder_spec(spec: str) -> None:
    """Refuse an encoder whose folder or packages are missing, before any other work is done for it."""
    kind, target = split_spec(spec)
    if kind == "openclip":
        from .open_clip import open_clip_package, split_target

        split_target(target)
        open_clip_package()  # the one package that no extra brings: first, because it says so
    packages, extra = ENCODER_PACKAGES[kind]
    for package in packages:
        need(package, extra)


def split_spec(spec: str) -> tuple[str, str]:
    """Return (kind, target); ``local:`` is replaced by the kind of the folder.

    >>> split_spec("hf:openai/clip-vit-base-patch16")
    ('hf', 'openai/clip-vit-base-patch16')
    """
    kind, colon, target = str(spec).partition(":")
    names = (*ENCODER_LOADERS, "local")
    if not colon or kind not in names:
        raise refuse("encoder", repr(spec), FORMS + _suggestion(str(spec), kind if colon else "", names))
    if not target:
        raise refuse("encoder", repr(spec), f"{kind}: followed by a folder or a model name")
    if kind in ("onnx", "local"):
        target = str(find_folder(target))
    if kind != "local":
        return kind, target
    recognised = kind_of(Path(target))
    if recognised is None:
        want = "model.json (ONNX), config.json (transformers) or open_clip_config.json"
        raise refuse(f"model folder {target}", "none of the known files", want)
    return recognised, f"local-dir:{target}" if recognised == "openclip" else target


def _suggestion(spec: str, kind: str, kinds: tuple[str, ...]) -> str:
    """Return a guess, in brackets, at what a name without a known kind stands for."""
    folders = [Path(home, spec) for home in ("", os.environ.get(MODELS)) if home is not None]
    if kind and (close := close_names(kind, kinds)):
        guess = f"{close[0]}:{spec.partition(':')[2]}"
    elif folder := next((folder for folder in folders if folder.is_dir()), None):
        guess = f"{'onnx' if kind_of(folder) == 'onnx' else 'local'}:{spec}"
    elif spec.count("/") == 1 and not spec.startswith((".", "/", "~")):
        guess = f"hf:{spec}"  # the form of a name on the hub
    else:
        return ""
    return f" (did you mean {guess}?)"


def kind_of(folder: Path) -> str | None:
    """Return the kind of a model folder, by its files; None if it is no model folder."""
    return next((kind for mark, kind in _MARKER_FILES if (folder / mark).is_file()), None)


def find_folder(name: str) -> Path:
    """Return the model folder ``name``: a path, or a name inside the folder that LATTE_MODELS gives."""
    folder = Path(name).expanduser()
    if folder.is_dir():
        return folder
    homes = [Path(home)] if (home := os.environ.get(MODELS)) else []
    if homes and (homes[0] / name).is_dir():
        return homes[0] / name
    places = [place for place in (folder.parent, *homes) if place.is_dir()]
    near = close_names(folder.name, [item.name for place in places for item in place.iterdir() if item.is_dir()])
    want = f"a model folder; near it: {', '.join(near)}" if near else f"a folder, or a name inside ${MODELS}"
    raise refuse("model folder", f"{name!r}, which does not exist", want)
