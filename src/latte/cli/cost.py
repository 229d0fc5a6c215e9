"""``latte cost`` and ``latte diagnose``: what each method costs, and what the memories of a run hold."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..text import short_count
from .options import PLUGINS, Folder, OutputFile, load_plugins
from .output import bar, block, line, print_rows, problem

if TYPE_CHECKING:
    from ..analysis.diagnose import ClassReport, DomainReport
    from ..methods.traffic import CostShape
    from ..paper.cost import CostRow, Reference

# DMN with 20 images per class: with them the closed form gives the paper's bytes
COST_METHODS = "clip,vte,tpt,zero,tda,tda-global,dmn+k=20,dmn-global+k=20,latte:cifar100c,ristretto"


@dataclass(frozen=True, slots=True)
class _Encoder:
    """The encoder that everything is set against."""

    macs: int | None
    reference: Reference | None
    words: str
    bytes: int | None = None  # where its size is known


@click.command()
@click.option("--classes", type=click.IntRange(2), default=100, show_default=True)
@click.option("--dim", type=click.IntRange(1), default=512, show_default=True, help="Dimensions of an embedding.")
@click.option("--views", type=click.IntRange(1), default=64, show_default=True, help="Of the methods that augment.")
@click.option("--clients", type=click.IntRange(1, 10**9), default=190, show_default=True, help="Of the server.")
@click.option("--methods", default=COST_METHODS, help="[LABEL=]NAME[:PRESET][+KEY=VALUE...], comma-separated.")
@PLUGINS
@click.option("--encoder", metavar="DIR", help="Encoder to time: a model folder, or a name such as onnx:DIR, hf:ID.")
@click.option(
    "--encoder-macs", type=click.FloatRange(1, 1e15), help="MACs of one image (default: counted, else CLIP ViT-B/16)."
)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
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
    """Show what each method costs: computation, time, memory, and bytes per round, beside the paper's numbers.

    The default sizes are the paper's (CIFAR-100-C with CLIP ViT-B/16). MACs and bytes are closed forms; time and
    memory are measured here, on the processor, and set against one pass of the encoder in the same run: that of
    --encoder, or one matrix product of as many MACs.
    """
    from ..core.validate import real
    from ..experiment.config import MethodConfig, parse_method
    from ..methods.traffic import CostShape
    from ..paper.cost import cost_record, cost_rows

    load_plugins(plugins)
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
Latte and Ristretto sync whenever a client likes; a global memory has a sync for every image.
"""


@click.command()
@click.argument("run", type=Folder(exists=True))
@click.option("--method", "label", help="Label of a Latte or Ristretto of the run (default: the first).")
@click.option("--seed", type=click.IntRange(0), help="One of the run's seeds (default: the first).")
@click.option("--data", type=Folder(), help="Where the data is now, if it moved.")
@click.option("--html", type=OutputFile(makes_folder=True), help="Write a page of its own, too.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def diagnose(
    run: Path, label: str | None, seed: int | None, data: Path | None, html: Path | None, as_json: bool
) -> None:
    """Look into the memories or heads of RUN, a folder that latte run wrote.

    Of Latte: what the memories hold, class by class. Of Ristretto: how far heads are trusted, whose evidence they rest
    on, and the spectrum of the covariance. A zero-shot model that has collapsed (most answers are one class) is warned
    of, since every method learns from its answers.

    One seed is replayed with the readable simulator. The diagnosis is stored in the folder and is a section of its
    report from then on (latte report RUN --format html).
    """
    from ..analysis.diagnose import Diagnosis, open_replay, save_diagnosis
    from ..analysis.diagnose import replay_run as replay
    from ..analysis.stats import zero_shot_answers
    from ..files.atomic import check_writable_folder, write_text
    from ..report.page.sections import diagnosis_sections, heads_sections, render_page

    planned = open_replay(run, data, label, seed)
    check_writable_folder(planned.run.folder, "run")
    with bar(planned.method.label[:12], planned.federation.samples) as advance:
        diagnosis = replay(planned, advance)
    line(f"wrote {save_diagnosis(diagnosis, planned.run.folder)}", err=True)
    if html is not None:
        html.parent.mkdir(parents=True, exist_ok=True)
        title = f"Diagnosis: {diagnosis.method} on {diagnosis.benchmark}"
        sections = diagnosis_sections(diagnosis) if isinstance(diagnosis, Diagnosis) else heads_sections(diagnosis)
        write_text(html, render_page(title, sections))
        line(f"wrote {html}", err=True)
    if as_json:
        block(diagnosis.to_json())
        return
    line(
        f"{diagnosis.method} on {diagnosis.benchmark}, seed {diagnosis.seed} (one seed, replayed): "
        f"{diagnosis.clients} clients, {diagnosis.samples} images, accuracy {diagnosis.accuracy:.2f} %"
    )
    answers = zero_shot_answers(planned.federation)
    frequent = f"{answers.share:.0f} % of its answers are {answers.most_frequent!r}"
    line(f"zero-shot: accuracy {answers.accuracy:.2f} %; {frequent}")
    if warning := answers.warning():
        problem(f"warning: {warning}")
    line("")
    if isinstance(diagnosis, Diagnosis):
        print_rows([_row(report) for report in (diagnosis.total, *diagnosis.classes)], False)
        block(_DIAGNOSE_NOTES)
        return
    print_rows([_head_row(report) for report in (diagnosis.total, *diagnosis.domains)], False)
    growth = ", ".join(f"{trust:.2f} after {images}" for images, trust in diagnosis.trust_after.items())
    line("")
    line(f"trust of a head by the images of its client: {growth}")
    shares = " ".join(f"{share:.1f}" for share in diagnosis.spectrum)
    line(f"covariance: largest eigenvalues in % of all: {shares}; as {diagnosis.directions:.0f} equal directions")
    block(_HEAD_NOTES.format(chance=diagnosis.chance, best=diagnosis.best()))


def _head_row(report: DomainReport) -> dict[str, Any]:
    return {
        "domain": report.name,
        "clients": report.clients,
        "images": report.images,
        "accuracy %": _number(report.accuracy),
        "trust": f"{report.trust:.2f}",
        "evidence": _number(report.evidence),
        "own %": _number(report.own),
        "inside %": _number(report.inside),
    }


def _row(report: ClassReport) -> dict[str, Any]:
    return {
        "class": report.name,
        "images": report.images,
        "full %": _number(report.full),
        "without %": _number(report.without),
        "empty queries %": _number(report.empty_queries),
        "nothing to read %": _number(report.unreadable),
        "external %": _number(report.external),
        "silenced %": _number(report.silenced),
        "local entropy": _spread(report.local_entropy),
        "external entropy": _spread(report.external_entropy),
    }


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _spread(values: tuple[float, ...] | None) -> str:
    return "-" if values is None else " ".join(f"{value:.2f}" for value in values)


_DIAGNOSE_NOTES = """
full: filled local slots at the end. without: clients that end with no item. empty queries: exchanges at which a client
had no prototype of its own. nothing to read: predictions with nothing stored. external: items from others among those
read. silenced: what the gate of the released code silences of the classes with something stored.
entropy: 10, 50 and 90 % of the stored items are at most this uncertain (0 certain, 1 no idea).
"""

_HEAD_NOTES = """
trust: the evidence weight w of a head at the end, 0 to 1. evidence: the images it rests on. own: those of the client
itself. inside: of the others, those of the client's own domain; {chance:.1f} % if everyone's counted alike, at best
{best}, with heads that use their own domain only.
"""
