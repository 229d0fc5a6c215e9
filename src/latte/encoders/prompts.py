"""From class names and templates to the zero-shot classifier that all clients share.

t_y = normalise(mean over templates of normalise(encode(template(y)))), with seven templates by default
(decision B15: they end in a full stop).
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from ..core.types import Vectors
from ..core.validate import near
from ..core.zero_shot import ZeroShot
from ..errors import InputError, refuse
from ..files.documents import read_text, refuse_inside
from .base import BATCH, BatchProgress, Encoder

DEFAULT = "seven"


def zero_shot(
    encoder: Encoder,
    classnames: Sequence[str],
    templates: Sequence[str] | None = None,
    batch_size: int = BATCH,
    progress: BatchProgress | None = None,
) -> ZeroShot:
    """Return the classifier of ``classnames`` in the space of ``encoder``, with the seven templates by default.

    The classifier has the names unchanged; in a prompt an underscore becomes a space.
    """
    templates = check_templates(read_templates(DEFAULT) if templates is None else templates)
    words = check_classnames(classnames)
    prompts = [template.replace("{}", word) for word in words for template in templates]
    rows = encoder.texts(prompts, batch_size=batch_size, progress=progress)  # (C · templates, D)
    mean: Vectors = rows.reshape(len(words), len(templates), -1).mean(axis=1)
    lengths = (mean * mean).sum(axis=1, keepdims=True) ** 0.5
    if not lengths.min() > 0:
        raise refuse("templates", "prompts that cancel each other", "templates of similar meaning")
    return ZeroShot(mean / lengths, tuple(classnames), encoder.scale)


def template_sets() -> tuple[str, ...]:
    """Return the names of the template files that come with the package.

    >>> "seven" in template_sets()
    True
    """
    folder = resources.files("latte.encoders") / "templates"
    return tuple(sorted(item.name[:-4] for item in folder.iterdir() if item.name.endswith(".txt")))


def read_templates(source: str | Path) -> tuple[str, ...]:
    """Read templates, one per line, from a named set or from a file of your own; "#" starts a comment line.

    >>> read_templates("photo")
    ('a photo of a {}.',)
    """
    if isinstance(source, str) and source in template_sets():
        text = (resources.files("latte.encoders") / "templates" / f"{source}.txt").read_text(encoding="utf-8")
    else:
        if not Path(source).is_file():
            names = ", ".join(near(str(source), template_sets()))
            raise refuse("templates", f"{str(source)!r}, which is no file", f"a file, or a set such as {names}")
        text = read_text(Path(source), "templates")
    lines = [line.strip() for line in text.splitlines()]
    try:
        return check_templates([line for line in lines if line and not line.startswith("#")])
    except InputError as error:
        raise refuse_inside(source, error) from None


def check_templates(templates: Sequence[str]) -> tuple[str, ...]:
    """Refuse an empty list, templates without a place for the name, and duplicates."""
    if isinstance(templates, str) or not templates:
        raise refuse("templates", repr(templates), "a list of at least one template such as 'a photo of a {}.'")
    for template in templates:
        if not isinstance(template, str) or template.count("{}") != 1:
            raise refuse("template", repr(template), "one {} where the class name goes")
    return _once("templates", tuple(templates), tuple(templates))


def check_classnames(classnames: Sequence[str]) -> tuple[str, ...]:
    """Return the names as they stand in a prompt; empty names, duplicates and bytes that are no text are refused.

    >>> check_classnames(["polar_bear", "dog"])
    ('polar bear', 'dog')
    """
    if isinstance(classnames, str) or len(classnames) < 2:
        raise refuse("classnames", repr(classnames), "a list of at least two names")
    for name in classnames:
        if not isinstance(name, str) or not name.replace("_", " ").strip():
            raise refuse("class name", repr(name), "a name that is not empty")
        if any("\ud800" <= char <= "\udfff" for char in name):
            raise refuse("class name", repr(name), "text: these bytes are no UTF-8")
    words = tuple(" ".join(name.replace("_", " ").split()) for name in classnames)
    return _once("classnames", words, tuple(classnames))


def _once(name: str, keys: tuple[str, ...], shown: tuple[str, ...]) -> tuple[str, ...]:
    seen: dict[str, str] = {}
    for key, original in zip(keys, shown, strict=True):
        if key in seen:
            other = f"{seen[key]!r} and {original!r}, the same words"
            raise refuse(name, f"{original!r} twice" if seen[key] == original else other, "every one once")
        seen[key] = original
    return keys
