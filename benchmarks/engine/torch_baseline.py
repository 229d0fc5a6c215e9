"""A labelled baseline: the released variant of Latte one sample at a time in torch, written from the specification.

It does what a straightforward implementation does: Python per sample, (C, S, D) tensors that are concatenated, sorted
and gathered for every prediction, and a sync in which every client compares itself with, and sorts, the whole global
memory, every round. `benchmarks/engine/speed.py` times it beside the engine; its predictions are those of variant
``released`` up to float ties.

python benchmarks/engine/torch_baseline.py --help
"""

from __future__ import annotations

import argparse
import math
import time

import numpy as np
import torch

GATE = 1e-3


class TorchClient:
    """One client: a local and an external memory of zero vectors with entropy 1 until they are filled."""

    def __init__(self, text: torch.Tensor, params, clients: int, scale: float) -> None:
        self.text, self.p, self.scale = text, params, scale
        classes, dim = text.shape
        external = min(params.k_e, clients - 1)
        self.local = torch.zeros(classes, params.k_l, dim)
        self.local_entropy = torch.ones(classes, params.k_l)
        self.count = [0] * classes
        self.external = torch.zeros(classes, external, dim)
        self.external_entropy = torch.ones(classes, external)

    def entropy(self, logits: torch.Tensor) -> torch.Tensor:
        log_p = torch.log_softmax(logits, dim=-1)
        return -(log_p.exp() * log_p).sum(dim=-1) / math.log(logits.shape[-1])

    def insert(self, label: int, image: torch.Tensor, entropy: torch.Tensor) -> None:
        if self.count[label] < self.p.k_l:
            slot = self.count[label]
            self.count[label] += 1
        else:
            slot = int(torch.argmax(self.local_entropy[label]))
            if entropy >= self.local_entropy[label, slot]:
                return
        self.local[label, slot] = image
        self.local_entropy[label, slot] = entropy

    def merged(self) -> tuple[torch.Tensor, torch.Tensor]:
        vectors = torch.cat([self.local, self.external], dim=1)
        entropy = torch.cat([self.local_entropy, self.external_entropy], dim=1)
        order = torch.argsort(entropy, dim=1, stable=True)[:, : self.p.k_l]
        kept = vectors.gather(1, order[:, :, None].expand(-1, -1, vectors.shape[2]))
        return kept, entropy.gather(1, order)

    def predict(self, image: torch.Tensor) -> int:
        logits = self.scale * image @ self.text.T
        self.insert(int(logits.argmax()), image, self.entropy(logits))
        memory, entropy = self.merged()
        similarity = (memory * image).sum(dim=-1)
        weights = torch.exp(-self.p.beta * (1 - similarity)) * torch.exp(-self.p.gamma * entropy)
        centres = (weights[:, :, None] * memory).sum(dim=1)
        length = centres.norm(dim=-1, keepdim=True)
        centres = torch.where(length > GATE, centres / length.clamp_min(1e-12), torch.zeros_like(centres))
        return int((logits + self.p.alpha * self.scale * centres @ image).argmax())

    def prototypes(self) -> tuple[torch.Tensor, torch.Tensor]:
        weights = torch.exp(-self.p.prototype_gamma * self.local_entropy)
        sums = (weights[:, :, None] * self.local).sum(dim=1)
        vectors = sums / sums.norm(dim=-1, keepdim=True).clamp_min(1e-12)
        return vectors, self.entropy(self.scale * vectors @ self.text.T)

    def receive(self, row: int, vectors: torch.Tensor, entropy: torch.Tensor) -> None:
        """Sort everyone's prototypes of each class by their similarity to ours, and keep all but the first."""
        similarity = (vectors * vectors[row]).sum(dim=-1)  # (N, C)
        order = torch.argsort(similarity, dim=0, descending=True, stable=True)
        chosen = order[1 : self.external.shape[1] + 1]
        classes = torch.arange(vectors.shape[1])
        self.external = vectors[chosen, classes].transpose(0, 1).contiguous()
        self.external_entropy = entropy[chosen, classes].transpose(0, 1).contiguous()


def run(streams: list[np.ndarray], text: np.ndarray, params, scale: float = 100.0, rounds: int | None = None):
    """Return the labels of each stream (n, D) with T = 1, of the first ``rounds`` rounds."""
    clients = [TorchClient(torch.tensor(text), params, len(streams), scale) for _ in streams]
    images = [torch.from_numpy(np.ascontiguousarray(stream)) for stream in streams]
    labels: list[list[int]] = [[] for _ in streams]
    longest = max(map(len, streams))
    with torch.no_grad():
        for number in range(min(longest, rounds or longest)):
            for client, stream, out in zip(clients, images, labels, strict=True):
                if number < len(stream):
                    out.append(client.predict(stream[number]))
            if number + 1 < longest:
                sync(clients)
    return [np.array(one, np.int64) for one in labels]


def sync(clients: list[TorchClient]) -> None:
    """Everyone uploads, then everyone downloads."""
    uploads = [client.prototypes() for client in clients]
    vectors = torch.stack([vectors for vectors, _ in uploads])  # (N, C, D)
    entropy = torch.stack([entropy for _, entropy in uploads])
    for row, client in enumerate(clients):
        client.receive(row, vectors, entropy)


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Time the torch baseline on embeddings saved by benchmarks/engine/speed.py."
    )
    parser.add_argument("file", help="npz with text (C, D), rows (n, D), client (n,) and the parameters")
    parser.add_argument("--rounds", type=int, default=None, help="stop after this many rounds")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with np.load(arguments.file, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    streams = [arrays["rows"][arrays["client"] == i] for i in range(int(arrays["client"].max()) + 1)]
    start = time.process_time()
    labels = run(streams, arrays["text"], _params(arrays), float(arrays["scale"]), arguments.rounds)
    seconds, samples = time.process_time() - start, sum(map(len, labels))
    print(f"{1e6 * seconds / samples:.2f} us per sample, {samples} samples")


def _params(arrays: dict[str, np.ndarray]):
    from latte.methods.latte.client import LatteParams

    values = {name: arrays[name].item() for name in ("k_l", "k_e", "alpha", "beta", "gamma")}
    return LatteParams(variant="released", **values)


if __name__ == "__main__":
    main()
