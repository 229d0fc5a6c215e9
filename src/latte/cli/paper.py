"""``latte paper``: the tables, figures, costs and theory of the paper."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import InputError
from ..text import short_count
from . import options
from .experiments import collect_failures, follow, how_to_run, run_searches
from .output import bar, block, line, print_rows
from .report import BACKBONES, format_of, report_options, write_output

if TYPE_CHECKING:
    from ..methods.traffic import CostShape
    from ..paper.cost import CostRow, Reference
    from ..paper.reproduce import PaperFile


@click.group()
def paper() -> None:
    """Make the paper's tables and figures, and check its costs and theory."""


@paper.command()
@click.argument("benchmark", type=click.Choice(["vlcs", "terra", "cifar10c", "cifar100c"]))
@click.option(
    "--backbone", type=BACKBONES, default="ViT-B/16", show_default=True, help="The paper's encoder of the data files."
)
@options.DATA
@click.option("--text-encoder", help="hf:ID or openclip:MODEL/WEIGHTS of the same model, for TPT.")
@click.option(
    "--images",
    type=click.Path(exists=True, path_type=Path),
    help="The images, as latte embed BENCHMARK:PATH takes them: make the files that are missing first.",
)
@click.option("--encoder", help="What makes the files: the paper's CLIP in any form (default: through open_clip).")
@options.DEVICE
@options.NUMBERS
@options.BATCH
@click.option("--hours", is_flag=True, help="Only say what is missing, and how long --images would take here.")
@click.option("--seeds", default="0-4", show_default=True, help="Seeds, such as 0-4 or 0,2,7.")
@click.option(
    "--baselines",
    type=click.Choice(["tuned", "oracle", "default"]),
    default="tuned",
    show_default=True,
    help="TDA and DMN: tuned on other seeds, on the reported ones, or not at all.",
)
@click.option("--methods", metavar="SPEC,...", help="More rows: [LABEL=]NAME[:PRESET][+KEY=VALUE...], comma-separated.")
@options.SET
@options.PLUGINS
@options.RUNS
@options.JOBS
@report_options
def table(
    benchmark: str,
    backbone: str,
    data: Path | None,
    text_encoder: str | None,
    images: Path | None,
    encoder: str | None,
    device: str,
    compute: str,
    batch: int,
    hours: bool,
    seeds: str,
    baselines: str,
    methods: str | None,
    settings: tuple[str, ...],
    plugins: tuple[Path, ...],
    runs: Path,
    jobs: int | str,
    kind: str | None,
    out: Path | None,
) -> None:
    """Make the paper's table for a benchmark, its numbers beside yours.

    Every method of the paper is run, and those of --methods, which may be your own (--plugin). The command needs two
    embedding files in the data folder, for example vlcs-vit-b-16.safetensors and, for VTE, TPT and Zero,
    vlcs-vit-b-16-views64.safetensors. With --images, what is missing of them is made from the images first, for days if
    need be: after an interruption, the same command continues. docs/reproduce-the-paper.md has the hours.

    TDA and DMN are tuned first, as in the paper: by a grid search on other seeds
    than the reported ones, whose choice is written to --runs. What is finished is kept there and not done again.
    """
    from ..data.catalogue import data_folder
    from ..encoders.tuning import check_prompt_tuner
    from ..experiment.collection import encoders, read_run
    from ..experiment.config import MethodConfig, parse_method, parse_seeds
    from ..experiment.runner import execute
    from ..files.atomic import check_writable_folder
    from ..paper import reproduce
    from ..report.contents import Report
    from ..report.page.sections import render_report
    from ..report.published import display
    from ..report.tables import build_table

    check_writable_folder(runs, "--runs")
    options.load_plugins(plugins)
    numbers, folder = parse_seeds(seeds), data_folder(data)
    plain, viewed = files = reproduce.paper_files(benchmark, backbone, folder)
    if text_encoder is not None:
        check_prompt_tuner(text_encoder)
        os.environ["LATTE_DEVICE"] = device  # of the processes that tune prompts
    elif viewed.path.is_file() or images is not None:
        for name in reproduce.needing_text_encoder():
            line(f"left out: {display(name)}, which needs the text encoder itself: --text-encoder", err=True)
    if images is not None:
        wanted = [*files, reproduce.tuning_source(benchmark, backbone, folder) if baselines == "tuned" else None]
        missing = [file for file in wanted if file is not None and not file.path.is_file()]
        if missing:
            _make_files(missing, images, encoder or reproduce.ENCODERS[backbone], device, compute, batch, hours)
    elif hours:
        raise click.UsageError("--hours measures with the images: give --images")
    if hours:
        return
    if not plain.path.is_file():
        raise InputError(plain.missing())
    if not viewed.path.is_file():
        line(f"left out: {viewed.missing()}", err=True)
    tuning = reproduce.tuning_source(benchmark, backbone, folder) if baselines == "tuned" else None
    extra = [tuning] if tuning is not None and tuning.path.is_file() else []
    there = [file for file in files if file.path.is_file()]
    more = [MethodConfig(**parse_method(text)) for text in methods.split(",")] if methods else []
    bench_files = reproduce.benches([*there, *extra], numbers, text_encoder, more, settings)
    pool = bench_files.pop() if extra else None
    search = None if baselines == "default" else reproduce.make_search(bench_files[0], baselines, runs, pool)
    if tuning is not None and search is not None and not search.apart:
        line(f"tuning under the reported corruptions: {tuning.missing()}", err=True)
    chosen = how_to_run(jobs, plugins)
    with collect_failures():
        tuned = None
        if search is not None:
            run_searches(list(search.tunings), search.folder, chosen)
            tuned = reproduce.choose(search)
            line(f"wrote {search.file}", err=True)
        plans = [bench.plan(tuned) for bench in bench_files]
        for plan in plans:
            follow(execute(plan, runs, chosen), len(plan.items()), plan.config.benchmark)
        source, zero_shot = bench_files[0].source, bench_files[0].benchmark.embeddings.zero_shot
        folders = [read_run(runs / plan.name) for plan in plans]
        encoder = next(iter(encoders(folders).values()), None)
        found = [replace(result, benchmark=source.benchmark) for folder in folders for result in folder.results]
        table = build_table(found, encoder, source.backbone)
        costs = reproduce.facts(plans[0], source.benchmark, source.backbone, zero_shot)
        words = reproduce.notes(source, plans[0], search, tuned)
        sentences = (*words, *(fact.sentence() for fact in costs))
        table = replace(table, notes=table.notes + sentences, facts=costs)
        write_output(render_report(Report((table,), tuple(folders)), kind or format_of(out)), out)


def _make_files(
    missing: list[PaperFile], images: Path, spec: str, device: str, precision: str, batch: int, only_say: bool
) -> None:
    """Make the files that are missing, after saying how long it takes; with ``only_say``, that is all."""
    from ..data.embed import EmbedPlan
    from ..encoders import check_encoder_spec
    from ..paper.pictures import check_works, estimate_hours, make_files, plan_works

    check_encoder_spec(spec)
    works = plan_works(missing, images, EmbedPlan(workers=os.cpu_count() or 1, batch=batch))
    encoder = options.open_encoder(spec, device, precision)
    check_works(works, encoder)
    line("measuring two batches of each file ...", err=True)
    for work, hours in zip(works, estimate_hours(works, encoder), strict=True):
        views = f" with {work.source.views} views" if work.source.views > 1 else ""
        size = work.bytes * encoder.dim / 2e9
        text = f"{work.source.path}: {work.left} of {len(work.images)} images{views}, {work.passes} passes"
        line(f"{text}: {hours:.2f} h here, {size:.2f} GB", err=True)
    if only_say:
        return
    for work, seconds in zip(works, make_files(works, encoder, partial(bar, unit="images")), strict=True):
        line(f"wrote {work.source.path} in {seconds:.0f} s", err=True)


FIGURE_NAMES = (
    "decentralisation",
    "period",
    "collaboration",
    "memory",
    "ablation",
    "sensitivity",
    "steps",
    "routing",
    "all",
)
VARIED = ("decentralisation", "period")


@paper.command()
@click.argument("name", type=click.Choice(FIGURE_NAMES))
@click.option("--benchmark", default="cifar10c-mini", show_default=True, help="Benchmark by name or file.")
@options.DATA
@click.option("--seeds", default="0-2", show_default=True, help="Seeds, such as 0-4 or 0,2,7.")
@click.option("--clients", type=click.IntRange(1), help="Clients per domain (default: the benchmark's own).")
@click.option("--preset", help="Latte's parameters (default: those published for the benchmark, if any).")
@options.SET
@click.option("--values", help="The values of a decentralisation or period figure, such as 1,2,5,10.")
@click.option(
    "--out", type=options.OutputFolder(), default=Path("figures"), show_default=True, help="Folder for the figures."
)
@options.JOBS
@options.JSON
def figure(
    name: str,
    benchmark: str,
    data: Path | None,
    seeds: str,
    clients: int | None,
    preset: str | None,
    settings: tuple[str, ...],
    values: str | None,
    out: Path,
    jobs: int | str,
    as_json: bool,
) -> None:
    """Draw a figure of the paper or of Ristretto, or all of them.

    Each is written as PNG and SVG, with its numbers as CSV, and a page shows them. --set changes the schedule or the
    engine of the runs, such as schedule.participation=0.5.

    \b
    decentralisation  accuracy against clients per domain
    period            accuracy against the images between two syncs
    collaboration     who downloads from whom, clients sorted by domain
    memory            t-SNE of one client's local and merged memory per domain
    ablation          local, external or both; similarity, certainty or both
    sensitivity       k_l, k_e, alpha, beta, gamma; Ristretto: kappa, rho, eta, nu
    steps             Ristretto without each of its six steps
    routing           whose evidence Ristretto uses, clients sorted by domain

    The runs behind the figures go to run folders in --out/runs: running again computes only what is missing there.
    """
    if values and name not in VARIED:
        raise click.UsageError(f"--values is for {' and '.join(VARIED)}")
    if clients and name == "decentralisation":
        raise click.UsageError("decentralisation varies the clients per domain: give them as --values, not --clients")
    for text in settings:
        if not text.startswith(("schedule.", "engine=")):
            raise click.UsageError(f"--set {text}: a figure takes schedule.KEY=VALUE or engine=VALUE")
    from ..core.validate import choice, whole
    from ..experiment.config import parse_seeds
    from ..experiment.plan import open_benchmark
    from ..methods.latte.client import PRESETS
    from ..paper.figures.make import make_figures, need_packages, write_gallery
    from ..paper.studies import make_setup

    names = FIGURE_NAMES[:-1] if name == "all" else (name,)
    need_packages(names)  # before the data is read
    if preset is not None:
        choice("preset", preset, tuple(PRESETS))
    with collect_failures():
        setup = make_setup(open_benchmark(benchmark, data), parse_seeds(seeds), clients, preset, settings)
        last = ""

        def say(what: str, done: int, total: int) -> None:  # where the work is; a tenth of the runs is a step
            nonlocal last
            text = f"{what} {total * (10 * done // total) // 10}/{total}" if total > 1 else what
            if text != last:
                line(text, err=True)
            last = text

        parts = values.split(",") if values else []
        numbers = tuple(sorted({whole("--values", part.strip(), 1) for part in parts}))
        pictures = make_figures(names, setup, out, how_to_run(jobs), numbers, say)
        page = write_gallery(pictures, setup, out)
        if as_json:
            line(json.dumps([{"file": str(one.path("svg")), "caption": one.caption} for one in pictures]))
        for picture in () if as_json else pictures:
            line(picture.path("svg"))
            line(f"  {picture.caption}")
        line(f"wrote {page}", err=True)


@paper.command("theory")
@click.option(
    "--out",
    type=options.OutputFolder(),
    default=Path("theory"),
    show_default=True,
    help="Folder for the figures (PNG, SVG, CSV), theory.json and theory.txt.",
)
@click.option(
    "--seed", type=click.IntRange(0, 2**63 - 1), default=0, show_default=True, help="Seed of the simulations."
)
@click.option("--quick", is_flag=True, help="Fewer repetitions, for a first look.")
@options.JSON
def theory(out: Path, seed: int, quick: bool, as_json: bool) -> None:
    """Check the paper's bounds, rates and limits in simulations."""
    from ..errors import need
    from ..paper.theory.figures import write_theory
    from ..paper.theory.study import StudyPlan, run_study

    need("matplotlib.figure", "report")  # before the simulation, not after it
    line("simulating: about two minutes (half a minute with --quick) ...", err=True)
    paths = write_theory(run_study(seed, StudyPlan.quick() if quick else StudyPlan()), out)
    line(f"wrote {len(paths)} files to {out}", err=True)
    block((out / ("theory.json" if as_json else "theory.txt")).read_text(encoding="utf-8"))


# DMN with 20 images per class: with them the closed form gives the paper's bytes
COST_METHODS = "clip,vte,tpt,zero,tda,tda-global,dmn+k=20,dmn-global+k=20,latte:cifar100c,ristretto"


@dataclass(frozen=True, slots=True)
class _Encoder:
    """The encoder that everything is set against."""

    macs: int | None
    reference: Reference | None
    words: str
    bytes: int | None = None  # where its size is known


@paper.command()
@click.option("--classes", type=click.IntRange(2), default=100, show_default=True, help="Number of classes.")
@click.option("--dim", type=click.IntRange(1), default=512, show_default=True, help="Dimensions of an embedding.")
@click.option(
    "--views",
    type=click.IntRange(1),
    default=64,
    show_default=True,
    help="Views per image of the methods that augment.",
)
@click.option("--clients", type=click.IntRange(1, 10**9), default=190, show_default=True, help="Clients of the server.")
@click.option("--methods", default=COST_METHODS, help="[LABEL=]NAME[:PRESET][+KEY=VALUE...], comma-separated.")
@options.PLUGINS
@click.option("--encoder", metavar="DIR", help="Encoder to time: a model folder, or a name such as onnx:DIR, hf:ID.")
@click.option(
    "--encoder-macs", type=click.FloatRange(1, 1e15), help="MACs of one image (default: counted, else CLIP ViT-B/16)."
)
@options.JSON
def cost(
    classes: int,
    dim: int,
    views: int,
    clients: int,
    methods: str,
    plugins: tuple[Path, ...],
    encoder: str | None,
    encoder_macs: float | None,
    as_json: bool,
) -> None:
    """Show what each method costs, beside the paper's numbers.

    Costs are computation, time, memory, and bytes per sync. The default sizes are the paper's (CIFAR-100-C with CLIP
    ViT-B/16). MACs and bytes are closed forms; time and memory are measured here, on the processor, and set against
    one pass of the encoder in the same run: that of --encoder, or one matrix product of as many MACs.
    """
    from ..core.validate import real
    from ..experiment.config import MethodConfig, parse_method
    from ..methods.traffic import CostShape
    from ..paper.cost import cost_record, cost_rows

    options.load_plugins(plugins)
    shape = CostShape(classes, dim, views)
    chosen = [MethodConfig(**parse_method(text)) for text in methods.split(",")]
    against = _encoder(encoder, None if encoder_macs is None else int(real("--encoder-macs", encoder_macs, 1)))
    rows = cost_rows(chosen, shape, against.macs, against.reference, clients)
    if as_json:
        encoder_facts = {"encoder_macs": against.macs, "encoder_macs_from": against.words}
        facts = {"clients": clients, **encoder_facts, "encoder_bytes": against.bytes}
        line(json.dumps({**cost_record(rows, shape, against.reference), **facts}))
    else:
        _print_text(rows, shape, clients, against)


def _encoder(spec: str | None, macs: int | None) -> _Encoder:
    from ..encoders import load_encoder
    from ..paper.cost import VIT_B_16, counted_macs, encoder_bytes, encoder_reference, matmul_reference, one_picture

    if spec is None and macs is None:
        words, size = "CLIP ViT-B/16, closed form", encoder_bytes("ViT-B/16")
        return _Encoder(VIT_B_16.macs, matmul_reference(VIT_B_16.macs), words, size)
    if spec is None:
        assert macs is not None
        return _Encoder(macs, matmul_reference(macs), "given")
    encoder, reference = encoder_reference(lambda: load_encoder(f"local:{spec}" if Path(spec).is_dir() else spec))
    if macs is not None:
        return _Encoder(macs, reference, "given")
    if not hasattr(encoder, "torch"):
        return _Encoder(None, reference, "not known (--encoder-macs)")
    pixels = one_picture(encoder)
    return _Encoder(counted_macs(lambda: encoder.images([pixels])), reference, "counted by torch")


def _print_text(rows: list[CostRow], shape: CostShape, clients: int, against: _Encoder) -> None:
    from ..paper.cost import PAPER_SHARE, PAPER_SIZES, paper_costs

    macs = f"{short_count(against.macs) or '?'} ({against.words})"
    line(f"{shape.classes} classes, {shape.dim} dimensions; MACs of the encoder: {macs}")
    if against.reference is not None:
        held = f", {short_count(against.reference.bytes)}B" if against.reference.bytes else ""
        line(f"times are set against {against.reference.what}: {1e3 * against.reference.seconds:.1f} ms{held}")
    block("\nper image\n")
    beside = (shape.classes, shape.dim) == PAPER_SIZES  # the paper's numbers are for its own sizes only
    print_rows([_computation(row, beside) for row in rows], False)
    block("\nbytes per sync of one client, up + down (in brackets with entropies, validity and scales)\n")
    print_rows([_bytes(row, beside) for row in rows if row.traffic], False)
    block(f"\na sync of all {clients} clients, at the server\n")
    print_rows([_server(row) for row in rows if row.server], False)
    if against.bytes is not None:  # a round in per cent of the encoder, which is sent once
        printed = f"; paper: {paper_costs()['clip'].bytes_per_round}" if beside else ""
        line("")
        line(f"the encoder in fp16, sent once: {short_count(against.bytes)}{printed}")
        for row in rows:
            if row.traffic:
                claim = f"; paper: {PAPER_SHARE}" if beside and row.name == "latte" else ""
                share = 100 * row.traffic["fp16"].vectors / against.bytes
                line(f"{row.label}: a round in fp16 is {share:.3g} % of it{claim}")
    block(_NOTES)


def _computation(row: CostRow, beside: bool) -> dict[str, Any]:
    direct, own, measured, paper = row.macs, row.own_macs, row.measured, row.paper
    total = None if row.encoder_macs is None or direct is None else row.encoder_macs + direct
    cells = {
        "method": row.label,
        "augments": "yes" if row.augments else "no",
        "backprop": "yes" if row.backprop else "no",
        "MACs": short_count(total) or "?",
        "of which memory": "?" if direct is None else short_count(direct),
        "here": "?" if own is None else short_count(own),
        "ms": f"{1e3 * measured.seconds:.3f}" if measured else "-",
        "extra time": f"{100 * (row.relative - 1):.3g} %" if row.relative is not None else "-",
        "peak memory": f"{short_count(measured.peak)}B" if measured else "-",
    }
    if beside:
        cells["paper: MACs"] = paper.macs if paper else "-"
        cells["paper: ms"] = paper.runtime_ms if paper else "-"
        cells["paper: memory"] = f"{paper.memory_gb} G" if paper else "-"
    return cells


def _bytes(row: CostRow, beside: bool) -> dict[str, Any]:
    assert row.traffic is not None
    cells = {
        name: f"{short_count(t.up)} + {short_count(t.down)} = {short_count(t.vectors)} ({short_count(t.whole)})"
        for name, t in row.traffic.items()
    }
    paper = row.paper.bytes_per_round if row.paper else ""
    return {"method": row.label, **cells, **({"paper (fp16)": paper or "-"} if beside else {})}


def _server(row: CostRow) -> dict[str, Any]:
    assert row.server is not None
    terms = " + ".join(f"{short_count(macs)} {name}" for name, macs in row.server.items())
    return {"method": row.label, "MACs": short_count(sum(row.server.values())), "of which": terms}


_NOTES = """
MACs: encoder passes and what is beside them, as the printed formulas have it; "here" is what this package computes;
"?" stands for the MACs of a method of your own; its bytes are shown if its class has messages(params, classes).
ms: beside the encoder, median over images; extra time: that and the other views, in per cent of one encoder pass.
Peak memory is that of the method's state and workspace, without the encoder; the paper's are with it, on a GPU.
A client of Latte or Ristretto chooses when it syncs; a global memory needs a sync for every image.
"""
