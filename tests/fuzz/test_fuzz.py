"""Thousands of damaged files of every format: each is read, or refused in one line that names it.

The generator has fixed seeds, so a failure names the one that brings it back. Memory is watched, too.
"""

from __future__ import annotations

import resource

import numpy as np
import pytest

from fuzz.formats import FORMATS
from latte.errors import InputError

MOST_GROWTH = 300 << 20  # bytes that the process may grow while it reads files of a few kilobytes
LONGEST = 700


@pytest.mark.parametrize("share", [pytest.param(1, marks=pytest.mark.slow, id="all"), pytest.param(8, id="an eighth")])
@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_damaged_files_are_refused_in_one_line(form, share, tmp_path):
    path = form.make(tmp_path)
    form.read(path)  # the sound one is read
    sound, before, refused, count = path.read_bytes(), peak(), 0, form.count // share
    for seed in range(count):
        rng = np.random.default_rng([seed, len(sound)])
        damage = form.damages[seed % len(form.damages)]
        path.write_bytes(damage(rng, sound))
        try:
            form.read(path)
        except InputError as error:
            check_refusal(error, path, seed)
            refused += 1
        except BaseException as error:
            error.add_note(f"seed {seed} of {form.name}")
            raise
    assert refused > count / 20, f"only {refused} of {count} were refused: the damage is too light"
    assert peak() - before < MOST_GROWTH


def check_refusal(error, path, seed):
    message = str(error)
    assert type(error) is InputError, f"seed {seed}: {error!r}"
    assert path.name in message or path.parent.name in message, f"seed {seed}: no name in {message!r}"
    assert "\n" not in message and len(message) < LONGEST, f"seed {seed}: {message!r}"
    assert "free memory" not in message, f"seed {seed}: {message!r}"  # nothing of this size needs much


def peak() -> int:
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
