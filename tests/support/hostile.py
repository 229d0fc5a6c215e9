"""Names that try to reach further than their place: terminals, spreadsheets, Markdown, LaTeX, pages, plots."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import numpy as np

from latte.core.zero_shot import ZeroShot
from latte.data.embeddings import save_embeddings
from latte.data.federation import Embeddings
from small_benchmark import unit

CLASSES = (
    "a\x1b[31m\x9b2J\x7f",
    "=cmd|' /C calc'!A0\r\nINJECTED",
    "_[/red]$\\frac$<script>alert(1)</script><!--\u202e_x_`",
)
DOMAINS = ("@d\x1b]0;x\x07\n|INJECTED\u2028", "-![x](javascript:alert(1))\u2066$&\\%{}^~\x85")
LABELS = ("l\x1b[8mb<b>", "\u202e\\input{x}|[y](z)")  # of methods
STEM = "ev\x1b[1mil\u2029[red]"  # of a file
ENCODER = "e\x1bn\u202ec</script>"


def hostile_file(folder: Path) -> Path:
    """Write 48 images of 3 classes in 2 domains, all with such names."""
    rng = np.random.default_rng(0)
    text, labels = unit(rng, 3, 8), np.arange(48) % 3
    views = text[labels] + 0.8 * unit(rng, 48, 8)
    views /= np.linalg.norm(views, axis=-1, keepdims=True)
    path = folder / f"{STEM}.safetensors"
    task, domain = ZeroShot(text, CLASSES, 10.0), np.repeat([0, 1], 24)
    save_embeddings(
        path, Embeddings("x", task, views[:, None], labels, domain, DOMAINS, {"encoder": ENCODER}, np.arange(48))
    )
    return path


def check_clean(content: bytes) -> str:
    """Return the text, which must be UTF-8 without a character that controls or hides; no name breaks a line."""
    text = content.decode("utf-8")
    hidden = {char for char in text if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")} - {"\n"}
    assert not hidden, ascii(hidden)
    assert not [line for line in text.splitlines() if line.lstrip("|").startswith("INJECTED")]
    return text
