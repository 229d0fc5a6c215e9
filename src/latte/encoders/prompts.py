"""From class names, templates and descriptions to the zero-shot classifier that all clients share.

t_y = normalise(mean over prompts of normalise(encode(prompt))). The prompts of a class are the templates with its name
in them, seven by default (decision B15: they end in a full stop), and the sentences that describe it, if there are any.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from unicodedata import normalize

import numpy as np

from ..core.types import Vectors
from ..core.validate import near
from ..core.zero_shot import ZeroShot
from ..errors import InputError, refuse
from ..files.documents import read_json, read_text, refuse_inside
from .base import BATCH, BatchProgress, Encoder

DEFAULT = "seven"
Descriptions = Mapping[str, Sequence[str]]  # class name -> sentences


def zero_shot(
    encoder: Encoder,
    classnames: Sequence[str],
    templates: Sequence[str] | None = None,
    batch_size: int = BATCH,
    progress: BatchProgress | None = None,
    descriptions: Descriptions | None = None,
) -> ZeroShot:
    """Return the classifier of ``classnames`` in the space of ``encoder``.

    Without ``templates`` its prompts are the ``descriptions`` alone, and without both the seven templates; with both,
    all prompts of a class count alike. The classifier has the names unchanged; in a template an underscore becomes a
    space.
    """
    templates = use_templates(templates, descriptions)
    words = check_classnames(classnames)
    sentences = class_descriptions(descriptions, classnames) if descriptions else {}
    prompts = [
        [*(template.replace("{}", word) for template in templates), *sentences.get(name, ())]
        for word, name in zip(words, classnames, strict=True)
    ]
    rows = encoder.texts([text for texts in prompts for text in texts], batch_size=batch_size, progress=progress)
    of_class = np.split(rows, np.cumsum([len(texts) for texts in prompts])[:-1])
    mean: Vectors = np.stack([part.mean(axis=0) for part in of_class])  # (C, D)
    lengths = (mean * mean).sum(axis=1, keepdims=True) ** 0.5
    if not lengths.min() > 0:
        raise refuse("templates", "prompts that cancel each other", "templates of similar meaning")
    return ZeroShot(mean / lengths, tuple(classnames), encoder.scale)


def use_templates(templates: Sequence[str] | None, descriptions: Descriptions | None) -> tuple[str, ...]:
    """Return the templates of a classifier: those given, none beside descriptions, or the seven."""
    if templates is None:
        return () if descriptions else read_templates(DEFAULT)
    return check_templates(templates)


def read_descriptions(path: str | Path) -> Descriptions:
    """Read the sentences of each class from a JSON file: an object of class names, each with a list (as CuPL's are)."""
    descriptions = read_json(Path(path), dict[str, tuple[str, ...]])
    if not descriptions:
        raise refuse(str(path), "no class", 'an object such as {"cat": ["A cat has whiskers."], ...}')
    for name, sentences in descriptions.items():
        if not sentences or not all(sentence.strip() for sentence in sentences):
            raise refuse(str(path), f"no sentence, or an empty one, for {name!r}", "at least one for every class")
    return descriptions


def class_descriptions(descriptions: Descriptions, classnames: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the sentences of ``classnames``; underscores and capitals do not matter, other classes may be there, too.

    >>> class_descriptions({"Polar bear": ("A white bear.",), "cat": ("It purrs.",)}, ["polar_bear"])
    {'polar_bear': ('A white bear.',)}
    """
    keys = tuple(descriptions)
    _once("descriptions", tuple(map(plain_name, keys)), keys)
    known = {plain_name(name): tuple(sentences) for name, sentences in descriptions.items()}
    if missing := [name for name in classnames if plain_name(name) not in known]:
        close = near(plain_name(missing[0]), sorted(known))
        raise refuse("descriptions", f"none for {', '.join(missing)}", f"every class; there is {', '.join(close)}")
    return {name: known[plain_name(name)] for name in classnames}


def plain_name(name: str) -> str:
    """Return a class name in the form used for comparison: Sea_Lion and "sea lion" are the same class.

    So are the two ways to write é: folders of macOS have it as e with an accent.
    """
    return normalize("NFC", " ".join(name.replace("_", " ").split()).casefold())


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
