"""The contract of a Collaborative method, check by check; all pass for a method that does not collaborate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ..core.contracts import Collaborative
from ..core.sync import sync
from ..core.types import External, Prototypes
from .material import (
    CLASSES,
    DIM,
    SLOTS,
    MakeMethod,
    a_download,
    a_zero_shot,
    an_external,
    arrays_of,
    class_attribute,
    equal,
    exchange_of,
    images,
    refuses,
    same,
    used,
    with_arrays,
)
from .states import damaged, with_rubbish


def collaboration_checks() -> dict[str, Callable[[MakeMethod], None]]:
    """Return the checks by name."""
    return {
        "summaries are messages": _summaries_are_messages,
        "syncs with its exchange": _syncs_with_its_exchange,
        "refuses other tasks": _refuses_other_tasks,
        "keeps nothing of a bad download": _keeps_nothing_of_a_bad_download,
        "free slots of a download mean nothing": _free_slots_of_a_download_mean_nothing,
        "prototypes are unit rows": _prototypes_are_unit_rows,
        "receives any number of slots": _receives_any_number_of_slots,
    }


def _collaborative(make: MakeMethod, synced: bool = True) -> Collaborative[Any, Any] | None:
    method = used(make, synced=synced)
    return method if isinstance(method, Collaborative) else None


def _summaries_are_messages(make: MakeMethod) -> None:
    if (method := _collaborative(make, synced=False)) is None:
        return
    upload = method.summary()
    assert isinstance(upload, class_attribute(method, "Upload")), "summary() returns the Upload of the class"
    assert upload.task == a_zero_shot().fingerprint, "an upload names the task: the fingerprint of the classifier"
    arrays = arrays_of(upload)
    before = {name: array.copy() for name, array in arrays.items()}
    for image in images(seed=3):
        method.predict(image)
    assert same(before, arrays), "what summary() returned must not change with later predictions"


def _syncs_with_its_exchange(make: MakeMethod) -> None:
    if (method := _collaborative(make)) is None:
        return
    exchange, other = exchange_of(method), used(make, 5)
    assert isinstance(other, Collaborative)
    sync([("a", method), ("b", other)], exchange)
    download = exchange.pull("a")
    assert isinstance(download, class_attribute(method, "Download")), "the exchange returns the Download of the class"
    before = method.state()
    method.receive(download)
    assert same(before, method.state()), "the same download twice is the download once"
    method.predict(images(1)[0])


def _refuses_other_tasks(make: MakeMethod) -> None:
    if (method := _collaborative(make)) is None:
        return
    exchange, other = exchange_of(method), a_zero_shot(scale=30.0).fingerprint
    refuses(lambda: exchange.push("a", replace(method.summary(), task=other)), "an upload of another task")
    before, download = method.state(), a_download(method, make)
    refuses(lambda: method.receive(replace(download, task=other)), "a download of another task")
    if class_attribute(method, "Upload") is not class_attribute(method, "Download"):
        refuses(lambda: method.receive(method.summary()), "an upload in place of a download")
    assert same(before, method.state()), "after a download of another task the memory must be exactly as before"


def _keeps_nothing_of_a_bad_download(make: MakeMethod) -> None:
    if (method := _collaborative(make)) is None:
        return
    before, good = method.state(), a_download(method, make)
    for what, bad in _bad_downloads(good):
        refuses(partial(method.receive, bad), f"a download with {what}")
        assert same(before, method.state()), f"after a download with {what} the memory must be exactly as before"


def _bad_downloads(good: Any) -> list[tuple[str, Any]]:
    arrays = arrays_of(good)
    bad = [(what, with_arrays(good, state)) for what, state in damaged(arrays) if state.keys() == arrays.keys()]
    if isinstance(good, External):
        everywhere = np.ones_like(good.valid)
        bad += [
            ("another C", External(good.vectors[1:], good.entropy[1:], good.valid[1:], good.task)),
            ("another D", replace(good, vectors=good.vectors[:, :, 1:])),
            ("zero vectors marked valid", replace(good, vectors=np.zeros_like(good.vectors), valid=everywhere)),
            ("an entropy of 2", replace(good, entropy=good.entropy + 2)),
        ]
    return bad


def _free_slots_of_a_download_mean_nothing(make: MakeMethod) -> None:
    method, clean = used(make), used(make)
    if not isinstance(method, Collaborative) or not isinstance(clean, Collaborative):
        return
    download = a_download(method, make)
    clean.receive(download)
    method.receive(with_arrays(download, with_rubbish(arrays_of(download))))
    for image in images(seed=6):
        got, want = method.predict(image), clean.predict(image)
        assert equal(got, want) and np.isfinite(got.scores).all(), "NaN in a free slot must not matter"


# --- Latte's own kinds of messages ------------------------------------------------------------------------


def _prototypes_are_unit_rows(make: MakeMethod) -> None:
    if (method := _collaborative(make)) is None or class_attribute(method, "Upload") is not Prototypes:
        return
    p = method.summary()
    assert p.vectors.shape == (CLASSES, DIM) and p.seen.shape == (CLASSES,), "(C, D), (C,)"
    norms = np.linalg.norm(p.vectors[p.seen], axis=1)
    assert p.seen.any() and np.allclose(norms, 1, atol=1e-5), "a seen class has a prototype of length 1"


def _receives_any_number_of_slots(make: MakeMethod) -> None:
    if (method := _collaborative(make)) is None or class_attribute(method, "Download") is not External:
        return
    for slots in (0, 1, SLOTS + 5):
        method.receive(an_external(np.random.default_rng(slots), slots))
        method.predict(images(1)[0])
