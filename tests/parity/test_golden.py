"""Variant ``released`` against recordings of the released code.

``LATTE_GOLDEN=<folder>`` runs the same tests on another folder of the same format.
"""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from latte.core.maths import entropy
from parity.golden_case import TIES, Case, Replay, replay

FOLDER = Path(os.environ.get("LATTE_GOLDEN", Path(__file__).parent / "golden"))
NAMES = [case["name"] for case in json.loads((FOLDER / "index.json").read_text())]


@cache
def both(name: str) -> tuple[Case, Replay]:
    case = Case.read(FOLDER, name)
    return case, replay(case)


def queues_with_ties(case: Case) -> set[tuple[int, int]]:
    """Return the (client, class) queues in which equal entropies leave the choice of a slot open."""
    tied = np.flatnonzero(case.flagged(*TIES))
    return {(int(case.client_of[s]), int(case.arrays["pseudo"][s])) for s in tied}


every_case = pytest.mark.parametrize("name", NAMES)


@every_case
def test_zero_shot(name):
    case, ours = both(name)
    free = ~case.flagged("pre_argmax_tie")
    np.testing.assert_allclose(ours.pre, case.arrays["pre_logits"], atol=2e-3)
    np.testing.assert_allclose(ours.entropy, case.arrays["entropy"], atol=1e-5)
    np.testing.assert_array_equal(ours.pseudo[free], case.arrays["pseudo"][free])


@every_case
def test_insertions(name):
    case, ours = both(name)
    free = ~case.flagged(*TIES)
    np.testing.assert_array_equal(ours.inserted[free], case.arrays["ins_slot"][free] >= 0)


@every_case
def test_final_local_memories(name):
    case, ours = both(name)
    concerned = queues_with_ties(case)
    for i in range(case.info["n"]):
        for y in range(case.info["c"]):
            if (i, y) not in concerned:
                want = set(case.arrays["local_src"][i, y].tolist()) - {-1}
                assert set(ours.sources[i, y].tolist()) - {-1} == want, (i, y)
    np.testing.assert_array_equal(
        [client.local.valid.sum(axis=1) for client in ours.clients], case.arrays["local_count"]
    )


@every_case
def test_merged_memories(name):
    case, ours = both(name)
    if case.params.memory != "both":
        assert "merged_sel" not in case.arrays  # the ablations record none
        return
    free = ~case.arrays["arb_class"] & ~case.flagged(*TIES, "merge_entropy_tie")[:, None]
    concerned = queues_with_ties(case)  # there, the number of kept candidates is all that is fixed
    for s, y in zip(*np.nonzero(free), strict=True):
        want = set(case.arrays["merged_sel"][s, y].tolist()) - {-1}
        if (int(case.client_of[s]), int(y)) in concerned:
            assert len(ours.merged[s][y]) == len(want), (s, y)
            continue
        assert ours.merged[s][y] == want, (s, y)


@every_case
def test_prototypes(name):
    case, ours = both(name)
    a = case.arrays
    for r, uploads in enumerate(ours.prototypes):
        for m, upload in enumerate(uploads):
            version = a["proto_ver"][r, m]
            vectors = np.where(upload.seen[:, None], upload.vectors, 0)
            np.testing.assert_allclose(vectors, a["proto_vec"][version], atol=1e-5)
            uncertainty = np.where(upload.seen, entropy(case.zero_shot.logits(upload.vectors)), 1.0)
            np.testing.assert_allclose(uncertainty, a["proto_ent"][version], atol=1e-5)


@every_case
def test_neighbours(name):
    case, ours = both(name)
    a, n, c = case.arrays, case.info["n"], case.info["c"]
    alive = np.zeros((n, c), bool)
    for r, cohort in enumerate(a["sync_cohort"]):
        alive[cohort] = np.abs(a["proto_vec"][a["proto_ver"][r]]).sum(axis=2) > 0
        for m in range(len(cohort)):
            for y in np.flatnonzero(~a["sync_arb"][r, m]):
                want = {int(j) for j in a["sync_ext_idx"][r, m, y] if alive[j, y]}
                assert ours.donors[r][m][y] == want, (r, m, y)


@every_case
def test_logits(name):
    case, ours = both(name)
    a = case.arrays
    # an exact entropy tie leaves equal embeddings in other slots; a borderline gate may fall on either side
    free = ~a["arb_class"] & ~case.flagged(*TIES, "merge_entropy_tie", "empty_gate_borderline")[:, None]
    # (their logits are compared wherever no tie was flagged for that very sample)
    memory = ours.post - ours.pre
    np.testing.assert_allclose(memory[free], a["mem_logits"][free], atol=2e-3)
    np.testing.assert_allclose(ours.post[free], a["post_logits"][free], atol=2e-3)


@every_case
def test_final_predictions(name):
    case, ours = both(name)
    strict = case.strict
    assert strict.sum() == case.info["strict_samples"]
    np.testing.assert_array_equal(ours.final[strict], case.arrays["final"][strict])


@every_case
def test_external_memories_hold_what_was_recorded(name):
    """Also where the released code's choice is arbitrary: index order, as recorded for up to 16 clients."""
    case, ours = both(name)
    a = case.arrays
    if case.info["n"] > 16 or not len(a["sync_round"]) or case.flagged(*TIES).any():
        pytest.skip("the recorded order is defined for up to 16 clients and without ties")
    for i, client in enumerate(ours.clients):
        vectors = np.where(client.external.valid[:, :, None], client.external.vectors, 0)
        free = ~similarity_ties(case, i)
        if vectors.shape[1]:
            np.testing.assert_allclose(vectors.sum(axis=1)[free], a["ext_mem"][i].sum(axis=1)[free], atol=1e-4)


def similarity_ties(case: Case, client: int) -> np.ndarray:
    """Return the classes for which the client's last download had equally similar donors, as a mask."""
    mask = np.zeros(case.info["c"], bool)
    syncs = [r for r, cohort in enumerate(case.arrays["sync_cohort"]) if client in cohort]
    for tie in case.info["sync_ties"]:
        if syncs and tie["sync"] == syncs[-1] and tie["client"] == client:
            mask[[y for y, reason in tie["classes"] if reason != "empty_query"]] = True
    return mask
