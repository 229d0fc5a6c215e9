"""False alarms and power of the e-process that says whether adapting helps, looked at after every label.

python benchmarks/robustness/help_and_harm.py

- false alarms: fleets of ten clients where adapting neither helps nor harms, so that each of the two differing answers
  is as likely to be the right one; how many fleets ever see "helps" or "hurts" in 1,000 labels of differing images
- power: how many labels of differing images it takes until half and 90 % of the fleets know, by how often the adapted
  answer is the right one of the two, and how many fleets are ever told the opposite

Labels arrive at clients at random; each client counts its own, and the sums are looked at after every label.
"""

from __future__ import annotations

import argparse

import numpy as np

from latte.core.evidence import ENOUGH, Pairs

CLIENTS, LABELS, NEITHER = 10, 1000, 0.35  # labels per fleet, and the share of which neither answer is right


def first_proofs(fleets: int, share: float, rng: np.random.Generator) -> tuple[list[float], list[float]]:
    """Return after how many labels each fleet first sees help and harm (inf: never); ``share`` of the decided help."""
    verdicts: dict[Pairs, str] = {}
    helps, hurts = [], []
    for _ in range(fleets):
        clients = [Pairs()] * CLIENTS
        fleet, first = Pairs(), {"helps": np.inf, "hurts": np.inf, "unknown": np.inf}
        for number in range(1, LABELS + 1):
            client = rng.integers(CLIENTS)
            kind = 2 if rng.random() < NEITHER else int(rng.random() >= share)
            one = Pairs(*np.eye(3, dtype=int)[kind].tolist())
            clients[client] += one
            fleet += one
            key = Pairs(fleet.helped, fleet.harmed)
            if key not in verdicts:
                verdicts[key] = key.verdict
            first[verdicts[key]] = min(first[verdicts[key]], number)
        if sum(clients, Pairs()) != fleet:
            raise AssertionError("the sums of the clients are not those of the fleet")
        helps.append(first["helps"])
        hurts.append(first["hurts"])
    return helps, hurts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fleets", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    print(f"evidence of {ENOUGH:g} to 1; {options.fleets} fleets of {CLIENTS} clients; up to {LABELS} labels")
    print(f"{'right when decided':>18}  {'helps':>7}  {'hurts':>7}  {'labels, half':>12}  {'labels, 90 %':>12}")
    for share in (0.5, 0.6, 0.7, 0.8, 0.9):
        helps, hurts = first_proofs(options.fleets, share, rng)
        told = [f"{100 * np.isfinite(found).mean():.1f} %" for found in (helps, hurts)]
        half, most = (np.quantile(helps, q, method="higher") for q in (0.5, 0.9))
        print(f"{share:>18.1f}  {told[0]:>7}  {told[1]:>7}  {half:>12g}  {most:>12g}", flush=True)


if __name__ == "__main__":
    main()
