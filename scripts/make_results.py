"""Run every method on every embedding file of a folder and write the tables to benchmarks/results/.

    LATTE_DATA=FOLDER python scripts/make_results.py [NAME ...]

Seeds 0 to 4. Latte has the paper's parameters where the benchmark is a paper's, and its dataset-free defaults in a row
of its own. Files with many views get VTE and Zero as well; TPT needs the text encoder: LATTE_ENCODER=onnx:DIR.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from latte.data.catalogue import data_folder, list_benchmarks, read_benchmark

TARGET = Path(__file__).parent.parent / "benchmarks" / "results"
PLAIN = "clip,tda,tda-global,dmn,dmn-global,latte,released=latte+variant=released,ristretto"
PRESETS = {"cifar10c": "cifar10c", "cifar100c_test": "cifar100c"}


def methods(name: str, views: int) -> str:
    if views > 1:
        return "clip,vte,zero" + (",tpt" if os.environ.get("LATTE_ENCODER") else "")
    preset = PRESETS.get(name)
    extra = f",preset=latte:{preset},preset-released=latte:{preset}+variant=released" if preset else ""
    return PLAIN + extra


def latte(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "latte", *arguments], check=True)


def make(name: str) -> None:
    views = read_benchmark(list_benchmarks()[name]).views.shape[1]
    runs = TARGET / "runs" / name
    extra = (
        ["--set", f"text_encoder={os.environ['LATTE_ENCODER']}"] if views > 1 and "LATTE_ENCODER" in os.environ else []
    )
    seeds = "0" if extra else "0-4"  # the methods of many views remember nothing: a seed changes no answer
    latte("run", "--benchmark", name, "--methods", methods(name, views), "--seeds", seeds, "--out", str(runs), *extra)
    for kind in ("markdown", "json"):
        latte(
            "report",
            str(runs),
            "--format",
            kind,
            "--out",
            str(TARGET / f"{name}.{'md' if kind == 'markdown' else kind}"),
        )
    (run,) = runs.iterdir()
    text = (run / "manifest.json").read_text(encoding="utf-8")
    for where, shown in ((str(data_folder()), "$LATTE_DATA"), (str(TARGET.parent.parent), ".")):
        text = text.replace(where, shown)
    if extra:
        text = text.replace(os.environ["LATTE_ENCODER"], "$LATTE_ENCODER")
    (TARGET / f"{name}.manifest.json").write_text(json.dumps(json.loads(text), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    for name in sys.argv[1:] or list_benchmarks():
        make(name)
