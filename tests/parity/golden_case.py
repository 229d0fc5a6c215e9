"""Replays one recorded case of the released code through variant ``released`` and keeps everything that happened."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from latte import GlobalMemory, Latte, ZeroShot
from latte.methods import LatteParams
from latte.methods.latte.readout import most_certain

MEMORY = {(True, True): "both", (True, False): "local", (False, True): "external"}
KINDS = {
    "exp_weighted": "exp_weighted",
    "mean": "mean",
    "min_ent": "min_entropy",
    "min_entropy": "min_entropy",
}
TIES = ("insert_entropy_tie", "evict_entropy_tie", "pre_argmax_tie")


@dataclass
class Case:
    """The recorded inputs, outputs and flags."""

    arrays: dict[str, np.ndarray]
    info: dict

    @classmethod
    def read(cls, folder: Path, name: str) -> Case:
        with np.load(folder / f"{name}.npz", allow_pickle=False) as file:
            arrays = {key: file[key] for key in file.files}
        return cls(arrays, json.loads((folder / f"{name}.json").read_text()))

    @property
    def params(self) -> LatteParams:
        info = self.info
        return LatteParams(
            variant="released",
            k_l=info["k_l"],
            k_e=info["k_e_config"],
            alpha=info["alpha"],
            beta=info["beta"],
            gamma=info["gamma_adapt"],
            gamma_prototype=info["gamma_proto"],
            prototype=KINDS[info["prototype"]],
            memory=MEMORY[info["local_enabled"], info["external_enabled"]],
        )

    @property
    def zero_shot(self) -> ZeroShot:
        return ZeroShot(self.arrays["text"], tuple(f"class {y}" for y in range(self.info["c"])))

    def flagged(self, *reasons: str) -> np.ndarray:
        """Return the samples that carry one of ``reasons`` (all reasons if none is given), as a mask."""
        mask = np.zeros(self.info["N"], bool)
        for sample, given in self.info["flagged_samples"].items():
            mask[int(sample)] = not reasons or bool(set(given) & set(reasons))
        return mask

    @property
    def strict(self) -> np.ndarray:
        return ~(self.flagged() | self.arrays["arb_class"].any(axis=1))

    @property
    def client_of(self) -> np.ndarray:
        return np.repeat(np.arange(self.info["n"]), np.diff(self.arrays["client_offsets"]))


@dataclass
class Replay:
    """What our code did, in the layout of the recorded arrays."""

    pseudo: np.ndarray
    entropy: np.ndarray
    inserted: np.ndarray
    pre: np.ndarray
    post: np.ndarray
    final: np.ndarray
    merged: list[list[set[int]]]
    sources: np.ndarray  # (n, c, k_l) sample index per local slot
    prototypes: list = field(default_factory=list)  # per sync, per cohort member
    donors: list = field(default_factory=list)
    clients: list[Latte] = field(default_factory=list)


def replay(case: Case) -> Replay:
    """Walk the recorded order of samples and syncs."""
    a, info = case.arrays, case.info
    n, c, total, names = info["n"], info["c"], info["N"], info["client_ids"]
    zero_shot, params = case.zero_shot, case.params
    clients = [Latte(zero_shot, params, normalise=True) for _ in range(n)]
    exchange = Latte.exchange_for(zero_shot, params, names)
    out = Replay(
        np.zeros(total, int), np.zeros(total), np.zeros(total, bool), np.zeros((total, c)), np.zeros((total, c)),
        np.zeros(total, int), [[set()] * c for _ in range(total)], np.full((n, c, info["k_l"]), -1), clients=clients,
    )  # fmt: skip
    syncs = {int(r): k for k, r in enumerate(a["sync_round"])}
    rounds = a["proc_round"][a["proc_order"]] if len(a["proc_round"]) == total else a["proc_round"]
    owner = case.client_of
    for number in range(1, info["rounds"] + 1):
        for sample in a["proc_order"][rounds == number]:
            one_sample(case, out, int(sample), int(owner[sample]))
        if number in syncs:
            one_sync(exchange, out, [int(i) for i in a["sync_cohort"][syncs[number]]], names)
    return out


def one_sample(case: Case, out: Replay, sample: int, who: int) -> None:
    client, raw = out.clients[who], case.arrays["X"][sample]
    before = client.local.vectors.copy(), client.local.valid.copy()
    prediction = client.predict(raw[None])
    unit = (raw / np.linalg.norm(raw)).astype(np.float32)
    pre = client.zero_shot.logits(unit)
    out.pre[sample], out.post[sample], out.final[sample] = pre, prediction.scores, prediction.label
    out.pseudo[sample], out.entropy[sample] = pre.argmax(), prediction.entropy * np.log(case.info["c"])
    changed = (before[0] != client.local.vectors).any(axis=2) | (before[1] != client.local.valid)
    out.inserted[sample] = changed.any()
    out.sources[who][changed] = sample
    if case.params.memory == "both":
        out.merged[sample] = kept_candidates(client)


def kept_candidates(client: Latte) -> list[set[int]]:
    """Return per class the candidate positions that a merge of the client's memories keeps."""
    entropy = np.concatenate([client.local.entropy, client.external.entropy], axis=1)
    valid = np.concatenate([client.local.valid, client.external.valid], axis=1)
    kept = most_certain(entropy, valid, client.params.k_l)
    k_l = client.params.k_l
    assert client.local.valid.shape[1] == k_l
    return [{int(k) for k in row if ok[k]} for row, ok in zip(kept, valid, strict=True)]


def one_sync(exchange: GlobalMemory, out: Replay, cohort: list[int], names: list[str]) -> None:
    uploads = [out.clients[i].summary() for i in cohort]
    for i, upload in zip(cohort, uploads, strict=True):
        exchange.push(names[i], upload)
    donors = []
    for i in cohort:
        rows, valid = exchange.neighbours(names[i])
        donors.append([set(row[ok].tolist()) for row, ok in zip(rows, valid, strict=True)])
        out.clients[i].receive(exchange.pull(names[i]))
    out.prototypes.append(uploads)
    out.donors.append(donors)
