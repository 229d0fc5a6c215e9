"""Run every method on every embedding file of a folder and write the tables to benchmarks/results/.

    LATTE_DATA=FOLDER python tools/make_results.py [NAME ...]
    LATTE_DATA=FOLDER python tools/make_results.py --same-syncs [NAME ...]

Seeds 0 to 9, with the predictions, which intervals over images need. Latte has the paper's parameters where
the benchmark is a paper's, and its defaults in a row of its own. Files with many views get VTE and Zero as well;
TPT needs the text encoder: LATTE_ENCODER=hf:DIR.

With --same-syncs, Latte and Ristretto sync at the same times (after 1, 2, 4, 8, 16 images of a client, then every 16),
as in the demo: the tables go to benchmarks/results/same-syncs/, and docs/ristretto.md is made from them.

With --leaderboard, every method takes part, with the same syncs: seeds 0 to 9 for the methods of the tables, 0 to 4 for
the others, fewer where a run takes many minutes. Runs are kept in benchmarks/results/runs/leaderboard/, and what is
there is not run again; the board of all of them goes to benchmarks/results/leaderboard.md, .json and .html, from which
README.md has its table.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from latte.data.catalogue import data_folder, list_benchmarks, read_benchmark

TARGET = Path(__file__).parent.parent / "benchmarks" / "results"
PLAIN = "clip,tda,tda-global,dmn,dmn-global,latte,released=latte+variant=released,ristretto"
SAME_SYNCS = "same-syncs"
SEEDS = "0-9"
COMPARED = "clip,tda,tda-global,dmn,dmn-global,latte,ristretto"
COPIES = ("pacs-demo",)  # bundled, the same embeddings as pacs
DOTA = "dota,dota-global,dota-fed"
MORE = "oga,oga-global,oga-fed,onzeta,onzeta-global,ecalp,pta,pta-global,pta-fed,bca,bca-global,adapt,adapt-global"
MANY_VIEWS = "clip,vte,zero,mta,tda,latte,ristretto"
MANY_CLASSES, MANY_IMAGES = 62, 20_000  # with more, DOTA has two seeds: an image costs it 1 to 60 ms
MOST_CLASSES = 300  # with more, all of the field's methods have two, and DOTA one
MOST_GLOBAL_GRAPH = 1e9  # images² x classes of one graph of all clients: beyond, a run of ECALP takes an hour
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
    encoder = os.environ.get("LATTE_ENCODER") if views > 1 else None
    extra = ["--set", f"text_encoder={encoder}"] if encoder else []
    seeds = "0" if extra else SEEDS  # the methods of many views remember nothing: a seed changes no answer
    write(TARGET, name, ["--methods", methods(name, views), "--seeds", seeds, *extra])


def make_with_same_syncs(name: str) -> None:
    if read_benchmark(list_benchmarks()[name]).views.shape[1] == 1:
        options = ["--methods", COMPARED, "--seeds", SEEDS, "--set", "schedule.sync=doubling"]
        write(TARGET / SAME_SYNCS, name, options)


def run_for_leaderboard(name: str) -> None:
    """Run everything that a set of the leaderboard has; runs that are there go on."""
    embeddings = read_benchmark(list_benchmarks()[name])
    folder = TARGET / "runs" / "leaderboard" / name
    runs = [(MANY_VIEWS, "0-4")]
    if embeddings.views.shape[1] == 1:
        classes, images = embeddings.zero_shot.classes, len(embeddings)
        graph, long = images**2 * classes <= MOST_GLOBAL_GRAPH, classes > MANY_CLASSES or images > MANY_IMAGES
        field = f"{MORE},ecalp-global" if graph else MORE
        runs = [(COMPARED, SEEDS), (field, "0-1" if classes > MOST_CLASSES else "0-4")]
        runs.append((DOTA, "0" if classes > MOST_CLASSES else "0-1" if long else "0-4"))
    for methods, seeds in runs:
        options = ["--methods", methods, "--seeds", seeds, "--set", "schedule.sync=doubling", "--predictions"]
        latte("run", "--benchmark", name, "--runs", str(folder), *options)


def write_leaderboard() -> None:
    for ending in ("md", "json", "html"):
        latte("leaderboard", str(TARGET / "runs" / "leaderboard"), "--out", str(TARGET / f"leaderboard.{ending}"))


def write(target: Path, name: str, options: list[str]) -> None:
    """Run one benchmark and write its table in two formats, and its manifest without the paths of this machine."""
    runs = TARGET / "runs" / target.name / name
    target.mkdir(exist_ok=True)
    latte("run", "--benchmark", name, "--runs", str(runs), "--predictions", *options)
    for kind, ending in (("markdown", "md"), ("json", "json")):
        latte("report", str(runs), "--format", kind, "--out", str(target / f"{name}.{ending}"))
    (run,) = runs.iterdir()
    text = (run / "manifest.json").read_text(encoding="utf-8")
    shown = {str(data_folder()): "$LATTE_DATA", str(TARGET.parent.parent): "."}
    for where, word in {**shown, os.environ.get("LATTE_ENCODER") or "$LATTE_ENCODER": "$LATTE_ENCODER"}.items():
        text = text.replace(where, word)
    (target / f"{name}.manifest.json").write_text(json.dumps(json.loads(text), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--same-syncs", action="store_true")
    parser.add_argument("--leaderboard", action="store_true")
    options = parser.parse_args()
    if options.leaderboard:
        for name in options.names or [name for name in list_benchmarks() if name not in COPIES]:
            run_for_leaderboard(name)
        write_leaderboard()
        sys.exit()
    for name in options.names or [name for name in list_benchmarks() if name not in COPIES]:
        (make_with_same_syncs if options.same_syncs else make)(name)
