"""Every format that a user can hand over: a small sound file, how it is read, how it can be damaged."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import shutil
import tarfile
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fuzz.mutate import damage_bytes, damage_header, damage_tree, damage_zip
from latte.analysis.diagnose import LEVELS, ClassReport, Diagnosis
from latte.core.zero_shot import ZeroShot
from latte.data.catalogue import BenchmarkFile, find_problems, read_benchmark, summarise_benchmark
from latte.data.cifar import open_cifar_c
from latte.data.embeddings import save_embeddings
from latte.data.federation import Embeddings
from latte.data.fetch import unpack_archive
from latte.edge.classify.classify import load_memory, save_memory
from latte.encoders import read_templates
from latte.encoders.onnx import read_model_json
from latte.errors import InputError
from latte.experiment.collection import collect, read_run
from latte.experiment.config import configure, read_config
from latte.experiment.folder import ResultLine, RunFolder
from latte.experiment.tune import read_tuned
from latte.files.documents import read_lines
from latte.methods import create
from latte.report.contents import build_report
from latte.report.page.sections import render_report
from latte.simulation.results import ClientScore, Result

Damage = Callable[[np.random.Generator, bytes], bytes]
TINY = Path(__file__).parent.parent / "data" / "tiny-onnx" / "model.json"


@dataclass(frozen=True)
class Format:
    """``make(folder)`` writes a sound file and returns it; ``read(path)`` reads it or refuses it."""

    name: str
    make: Callable[[Path], Path]
    read: Callable[[Path], object]
    damages: tuple[Damage, ...] = (damage_bytes,)
    count: int = 1000


def tree(rng: np.random.Generator, content: bytes) -> bytes:
    return damage_tree(rng, json.loads(content)).encode("utf-8", "surrogatepass")


def line_of(rng: np.random.Generator, content: bytes) -> bytes:
    lines = content.decode().splitlines()
    at = int(rng.integers(0, len(lines)))
    lines[at] = damage_tree(rng, json.loads(lines[at]))
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogatepass")


# --- embeddings -------------------------------------------------------------------------------------------


def unit(*shape: int) -> Any:
    rows = np.random.default_rng(len(shape)).normal(size=shape)
    return (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype(np.float16)


TASK = ZeroShot(unit(3, 4), ("a", "b", "c"), 50.0)


def make_npz(folder: Path, packed: bool = True) -> Path:
    arrays = {
        "emb": unit(8, 4), "label": np.arange(8, dtype=np.int16) % 3, "domain": np.repeat([0, 1], 4).astype(np.int16),
        "domains": np.array(["x", "y"]), "classes": np.array(["a", "b", "c"]), "text": unit(3, 4),
        "index": np.arange(8), "client": np.repeat([1, 0], 4), "meta": np.array(json.dumps({"logit_scale": 50})),
        "unused": np.zeros((3, 3)),
    }  # fmt: skip
    (np.savez_compressed if packed else np.savez)(folder / "x.npz", **arrays)
    return folder / "x.npz"


def make_embeddings(folder: Path) -> Path:
    labels, domain = np.arange(8) % 3, np.repeat([0, 1], 4)
    data = Embeddings("x", TASK, unit(8, 2, 4), labels, domain, ("x", "y"), {"encoder": "e"}, np.arange(8), domain)
    save_embeddings(folder / "x.safetensors", data)
    return folder / "x.safetensors"


def read_embeddings(path: Path) -> None:
    entry = BenchmarkFile("x", path)
    summarise_benchmark(entry)
    list(find_problems(read_benchmark(entry)))


def make_npy(folder: Path) -> Path:
    np.save(folder / "labels.npy", np.zeros(50_000, np.uint8))
    with (folder / "fog.npy").open("wb") as file:
        header = {"descr": "|u1", "fortran_order": False, "shape": (50_000, 32, 32, 3)}
        np.lib.format.write_array_header_1_0(file, header)
        file.truncate(file.tell() + 50_000 * 32 * 32 * 3)  # zeros that take no room
    return folder / "labels.npy"


def make_archive(folder: Path) -> Path:
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name in ("d/a.bin", f"d/{'b' * 120}"):
            member = tarfile.TarInfo(name)
            member.size, member.mtime = 100, 1.5
            tar.addfile(member, io.BytesIO(bytes(100)))
    (folder / "x.tar.gz").write_bytes(gzip.compress(plain.getvalue(), mtime=0))
    return folder / "x.tar.gz"


def inside_gzip(rng: np.random.Generator, content: bytes) -> bytes:
    return gzip.compress(damage_bytes(rng, gzip.decompress(content)[:4096]))


def read_archive(path: Path) -> None:
    shutil.rmtree(unpack_archive(path, "d"))


# --- memories ---------------------------------------------------------------------------------------------


def make_memory(folder: Path) -> Path:
    method = create("latte", TASK, {"k_l": 2})
    for row in np.asarray(unit(8, 4), np.float32):
        method.predict(row[None] / np.linalg.norm(row))
    save_memory(folder / "m.safetensors", method, TASK)
    return folder / "m.safetensors"


def read_memory(path: Path) -> None:
    method = create("latte", TASK, {"k_l": 2})
    before = method.state()
    try:
        load_memory(path, method, TASK)
    except InputError:
        after = method.state()
        assert all(np.array_equal(before[name], after[name]) for name in before), "a refused memory changed something"
        raise


# --- run folders ------------------------------------------------------------------------------------------

RESULTS = [
    Result(
        "bench", method, {"alpha": 1.0, "k": 3, "variant": "paper"}, "preset", seed,
        (ClientScore("a-0", "a", 10, 4 + seed), ClientScore("b-1", "b", 12, 6)), "engine",
    )
    for method in ("clip", "latte") for seed in (0, 1)
]  # fmt: skip
CONFIG = {
    "format": "latte-run/1", "data": {"sha256": "00", "fingerprint": "f", "encoder": "CLIP RN50"}, "sources": {},
    "config": {"benchmark": "bench", "methods": [{"name": "latte", "params": {"alpha": 1.0}}], "seeds": [0, 1]},
}  # fmt: skip
MANIFEST = {
    "run": "r", "benchmark": "bench", "data": {"path": "x", "sha256": "00", "fingerprint": "f", "encoder": "CLIP RN50"},
    "sessions": [{"started": "now", "versions": {"latte-tta": "1"}, "git": None, "machine": {"cores": 2}}],
}  # fmt: skip


def make_run(folder: Path, done: bool = True) -> RunFolder:
    run = RunFolder(folder / "run")
    run.path.mkdir()
    (run.path / "config.json").write_text(json.dumps(CONFIG))
    (run.path / "manifest.json").write_text(json.dumps(MANIFEST))
    (run.path / "diagnosis.json").write_text(diagnosis().to_json())
    for result in RESULTS:
        run.append(ResultLine(result.to_json(), result), 0.5)
    if done:
        run.finish([result.to_json() for result in RESULTS])
    return run


def diagnosis() -> Diagnosis:
    report = ClassReport("all", 8, 50.0, 0.0, None, 1.0, 2.0, 3.0, (0.1, 0.2, 0.3), None)
    below = {"images": tuple(100 * level for level in LEVELS)}
    return Diagnosis("bench", "latte", 0, {"alpha": 1.0}, 2, 8, 50.0, report, (replace(report, name="a"),), below)


def part(name: str, done: bool = True) -> Callable[[Path], Path]:
    return lambda folder: make_run(folder, done).path / name


def report(path: Path) -> None:
    run = read_run(path.parent)
    contents = build_report(collect([path.parent]))
    assert all(0 <= result.micro <= 100 for result in run.results)
    if len(run.results) < len(RESULTS):
        assert not run.done
    assert run.done or all(result in RESULTS for result in run.results), "an edited line was believed"
    render_report(contents, "html")


def report_again(path: Path) -> None:
    """Read a finished run whose mark was made for the damaged results: only the schema is left to refuse them."""
    (path.parent / "done").write_text(hashlib.sha256(path.read_bytes()).hexdigest())
    run = read_run(path.parent)
    assert all(0 <= result.micro <= 100 for result in run.results)
    run.file()


def compare(path: Path) -> None:
    read_run(path.parent).file()


def report_configured(path: Path) -> None:
    """Report a run whose configuration is damaged, beside a sound one, and then read the configuration."""
    make_run(Path(tempfile.mkdtemp(dir=path.parent.parent)))
    render_report(build_report(collect([path.parent.parent])), "text")
    compare(path)


def make_sweep_file(folder: Path) -> Path:
    make_run(folder)
    points = [{"values": {"method.alpha": 0.5, "method.order": "a"}, "run": "run"}]
    axes = [{"key": "method.alpha", "values": [0.5, 2]}, {"key": "method.order", "values": ["a"]}]
    content = {"format": "latte-sweep/1", "axes": axes, "points": points, "purposes": ["sweep"]}
    (folder / "sweep.json").write_text(json.dumps(content))
    return folder / "sweep.json"


def report_sweep(path: Path) -> None:
    contents = build_report(collect([path.parent]))
    for kind in ("html", "text", "csv", "json", "latex", "markdown"):
        render_report(contents, kind)


# --- the others -------------------------------------------------------------------------------------------


def make_model(folder: Path) -> Path:
    (folder / "model.json").write_bytes(TINY.read_bytes())
    return folder / "model.json"


def make_exported(folder: Path) -> Path:
    model = json.loads(TINY.read_text())
    rule = {"size": [32, 32], "short_side": 32, "interpolation": "bicubic", "mean": [0.5] * 3, "std": [0.25] * 3}
    model["image"] = {"file": "image.onnx", "input": "image", "output": "embedding", "preprocess": rule}
    (folder / "model.json").write_text(json.dumps(model))
    return folder / "model.json"


def make_tuned(folder: Path) -> Path:
    saw = {
        "benchmark": "b", "data": CONFIG["data"], "seeds": [100, 101], "clients_per_domain": None, "order": "shuffled",
        "schedule": {"period": 1},
    }  # fmt: skip
    chosen = {"name": "latte", "params": {"alpha": 1.0, "variant": "paper"}, "accuracy": 50.0, "grid": [{"alpha": 1}]}
    tuned = {"format": "latte-tuned/1", "rule": "highest", "saw": saw, "methods": {"latte": chosen}}
    (folder / "tuned.json").write_text(json.dumps(tuned))
    return folder / "tuned.json"


TOML = """benchmark = "cifar10c-mini"
seeds = "0-4"
[schedule]
period = 5
participation = 0.5
[[methods]]
name = "latte"
preset = "cifar10c"
params = { alpha = 0.5, k_l = 3 }
[[methods]]
name = "clip"
"""


def make_toml(folder: Path) -> Path:
    (folder / "x.toml").write_text(TOML)
    return folder / "x.toml"


def read_run_config(path: Path) -> None:
    raw = read_config(path)
    try:
        configure(raw)
    except InputError as error:  # the command line adds the name of the file
        raise InputError(f"{path}: {error}") from None


def make_lines(folder: Path) -> Path:
    (folder / "lines.txt").write_text("a photo of a {}.\na bad photo of the {}.\n# a comment\n", encoding="utf-8")
    return folder / "lines.txt"


HEADERS = (damage_bytes, damage_header, damage_header)
TREES = (damage_bytes, tree, tree)
FORMATS = [
    Format("npz", make_npz, read_embeddings, (damage_bytes, damage_zip, damage_zip), 3000),
    Format("npz, stored", lambda f: make_npz(f, False), read_embeddings, (damage_bytes, damage_zip), 1500),
    Format("npy", make_npy, lambda path: open_cifar_c(path.parent, "fog", 1), count=500),
    Format("archive", make_archive, read_archive, (damage_bytes, inside_gzip), 1000),
    Format("embeddings", make_embeddings, read_embeddings, HEADERS, 3000),
    Format("memory", make_memory, read_memory, HEADERS, 3000),
    Format("results, unfinished", part("results.jsonl", False), report, (damage_bytes, line_of), 400),
    Format("results, done", part("results.jsonl"), report, (damage_bytes, line_of), 200),
    Format("results, marked", part("results.jsonl"), report_again, (damage_bytes, line_of, line_of), 2000),
    Format("items", part("items.jsonl", False), report, (damage_bytes, line_of), 400),
    Format("config.json", part("config.json"), compare, TREES, 1500),
    Format("config.json, reported", part("config.json"), report_configured, TREES, 100),
    Format("sweep.json", make_sweep_file, report_sweep, TREES, 400),
    Format("manifest.json", part("manifest.json"), report, TREES, 300),
    Format("done", part("done"), compare, (damage_bytes,), 300),
    Format("diagnosis.json", part("diagnosis.json"), lambda path: Diagnosis.load(path.parent), TREES, 1500),
    Format("model.json", make_model, lambda path: read_model_json(path.parent), TREES, 2000),
    Format("model.json, exported", make_exported, lambda path: read_model_json(path.parent), TREES, 2000),
    Format("tuned", make_tuned, read_tuned, TREES, 2000),
    Format("TOML", make_toml, read_run_config, count=2000),
    Format("templates", make_lines, read_templates, count=1000),
    Format("classes", make_lines, read_lines, count=500),
]
