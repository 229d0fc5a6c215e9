"""``latte reproduce``: the paper's table for one benchmark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import InputError
from .arguments import Folder, OutputFile, OutputFolder
from .output import line
from .report_command import FORMAT_NAMES, format_of, write_output
from .run_options import follow, or_exit, plain_options
from .tune_command import search_all

if TYPE_CHECKING:
    from ..experiment.plan import Plan
    from ..experiment.tune import TunedFile
    from ..report.baselines import Search
    from ..report.reproduce import Bench, PaperFile


@click.command()
@click.argument("benchmark", type=click.Choice(["vlcs", "terra", "cifar10c", "cifar100c"]))
@click.option("--backbone", type=click.Choice(["ViT-B/16", "RN50"]), default="ViT-B/16", show_default=True)
@click.option("--data", type=Folder(), help="Folder of the embedding files [default: $LATTE_DATA].")
@click.option("--text-encoder", help="hf:ID, openclip:MODEL/WEIGHTS or onnx:DIR of the same model, for TPT.")
@click.option("--seeds", default="0-4", show_default=True, help="Such as 0-4 or 0,2,7.")
@click.option(
    "--baselines",
    type=click.Choice(["tuned", "oracle", "default"]),
    default="tuned",
    show_default=True,
    help="TDA and DMN: tuned on other seeds, on the reported ones, or not at all.",
)
@click.option("--runs", type=OutputFolder(), default=Path("runs"), show_default=True, help="Run folders.")
@click.option("--format", "kind", type=click.Choice(FORMAT_NAMES), help="Default: what --out ends in, else text.")
@click.option("--out", type=OutputFile(makes_folder=True), help="Write to a file instead of stdout.")
def reproduce(
    benchmark: str,
    backbone: str,
    data: Path | None,
    text_encoder: str | None,
    seeds: str,
    baselines: str,
    runs: Path,
    kind: str | None,
    out: Path | None,
) -> None:
    """Run every method of the paper on one of its benchmarks and show the paper's numbers beside.

    It needs two embedding files in the data folder, for example vlcs-vit-b-16.safetensors and, for VTE, TPT and Zero,
    vlcs-vit-b-16-views64.safetensors. TDA and DMN are tuned first, as in the paper: by a grid search on other seeds
    than the reported ones, whose choice is written to --runs. What is finished is kept there and not done again.
    """
    from ..data.catalogue import data_folder
    from ..encoders.tuning import check_prompt_tuner
    from ..experiment.config import parse_seeds
    from ..report.baselines import make_search
    from ..report.reproduce import benches, paper_files, tuning_source

    numbers, folder = parse_seeds(seeds), data_folder(data)
    files = _available_files(paper_files(benchmark, backbone, folder), text_encoder)
    if text_encoder is not None:
        check_prompt_tuner(text_encoder)
    tuning = tuning_source(benchmark, backbone, folder) if baselines == "tuned" else None
    extra = [tuning] if tuning is not None and tuning.path.is_file() else []
    bench_files = benches([*files, *extra], numbers, text_encoder)
    pool = bench_files.pop() if extra else None
    search = None if baselines == "default" else make_search(bench_files[0], baselines, runs, pool)
    if tuning is not None and search is not None and not search.apart:
        line(f"tuning under the reported corruptions: {tuning.missing()}", err=True)
    or_exit(lambda: write_output(_table(bench_files, search, runs, kind or format_of(out)), out))


def _table(bench_files: list[Bench], search: Search | None, runs: Path, kind: str) -> str:
    """Tune, run and return the table."""
    from ..experiment.runs import encoders, merge_results, read_run
    from ..report.contents import Report
    from ..report.page import render_report
    from ..report.protocol import facts, notes
    from ..report.reproduce import one_name
    from ..report.tables import build_table

    tuned = _tune(search) if search else None
    plans = [bench.plan(tuned) for bench in bench_files]
    _run(plans, runs)
    source, zero_shot = bench_files[0].source, bench_files[0].benchmark.embeddings.zero_shot
    folders = [read_run(runs / plan.name) for plan in plans]
    encoder = next(iter(encoders(folders).values()), None)
    table = build_table(one_name(merge_results(folders), source.benchmark), encoder, source.backbone)
    costs = facts(plans[0], source.benchmark, source.backbone, zero_shot)
    sentences = (*notes(source, plans[0], search, tuned), *(fact.sentence() for fact in costs))
    return render_report(Report((replace(table, notes=table.notes + sentences, facts=costs),), tuple(folders)), kind)


def _available_files(files: tuple[PaperFile, PaperFile], text_encoder: str | None) -> list[PaperFile]:
    """Return the files to use: the first must be there; without the second, the rows that are left out are printed."""
    from ..report.paper import display
    from ..report.reproduce import needing_text_encoder

    plain, viewed = files
    if not plain.path.is_file():
        raise InputError(plain.missing())
    if not viewed.path.is_file():
        line(f"left out: {viewed.missing()}", err=True)
        return [plain]
    for name in needing_text_encoder() if text_encoder is None else ():
        line(f"left out: {display(name)}, which needs the text encoder itself: --text-encoder", err=True)
    return [plain, viewed]


def _tune(search: Search) -> TunedFile:
    """Do what is missing of the search and write its choice."""
    from ..report.baselines import choose

    search_all(list(search.tunings), search.folder, plain_options())
    tuned = choose(search)
    line(f"wrote {search.file}", err=True)
    return tuned


def _run(plans: list[Plan], runs: Path) -> None:
    from ..experiment.runner import execute

    for plan in plans:
        follow(execute(plan, runs, plain_options()), len(plan.items()), plan.config.benchmark)
