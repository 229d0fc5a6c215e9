"""``latte cost``: what each method costs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .options import PLUGINS, load_plugins
from .output import block, line, print_rows

if TYPE_CHECKING:
    from ..analysis.cost import CostShape
    from ..analysis.cost_measure import Reference
    from ..analysis.cost_table import CostRow
    from ..experiment.config import MethodConfig

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
    from ..analysis.cost import CostShape
    from ..analysis.cost_table import cost_rows
    from ..core.validate import real

    load_plugins(plugins)
    shape = CostShape(classes, dim, views)
    chosen = [_method(text) for text in methods.split(",")]
    against = _encoder(encoder, None if encoder_macs is None else int(real("--encoder-macs", encoder_macs, 1)))
    rows = cost_rows(chosen, shape, against.macs, against.reference, clients)
    if as_json:
        _print_json(rows, shape, clients, against)
    else:
        _print_text(rows, shape, clients, against)


def _method(text: str) -> MethodConfig:
    from ..experiment.config import MethodConfig, parse_method

    return MethodConfig(**parse_method(text))


def _encoder(spec: str | None, macs: int | None) -> _Encoder:
    from ..analysis.cost_encoder import VIT_B_16, encoder_bytes
    from ..analysis.cost_measure import encoder_reference, matmul_reference

    if spec is None and macs is None:
        words, size = "CLIP ViT-B/16, closed form", encoder_bytes("ViT-B/16")
        return _Encoder(VIT_B_16.macs, matmul_reference(VIT_B_16.macs), words, size)
    if spec is None:
        assert macs is not None
        return _Encoder(macs, matmul_reference(macs), "given")
    encoder, reference = encoder_reference(lambda: _load(spec))
    if macs is not None:
        return _Encoder(macs, reference, "given")
    counted = _counted(encoder)
    return _Encoder(counted, reference, "not known (--encoder-macs)" if counted is None else "counted by torch")


def _load(spec: str) -> Any:
    from importlib import import_module
    from importlib.util import find_spec

    if find_spec("latte.encoders") is None:
        raise click.UsageError("this installation has no encoders")
    return import_module("latte.encoders").load_encoder(f"local:{spec}" if Path(spec).is_dir() else spec)


def _counted(encoder: Any) -> int | None:
    """Return what torch counts for one picture; None for an encoder that does not run on torch."""
    from ..analysis.cost_encoder import counted_macs
    from ..analysis.cost_measure import one_picture

    if not hasattr(encoder, "torch"):
        return None
    pixels = one_picture(encoder)
    return counted_macs(lambda: encoder.images([pixels]))


def _print_json(rows: list[CostRow], shape: CostShape, clients: int, against: _Encoder) -> None:
    from ..analysis.cost_table import cost_record

    facts = {
        "clients": clients,
        "encoder_macs": against.macs,
        "encoder_macs_from": against.words,
        "encoder_bytes": against.bytes,
    }
    line(json.dumps({**cost_record(rows, shape, against.reference), **facts}))


def _print_text(rows: list[CostRow], shape: CostShape, clients: int, against: _Encoder) -> None:
    from ..analysis.cost import PAPER_SIZES, short_count

    macs = f"{short_count(against.macs) or '?'} ({against.words})"
    line(f"{shape.classes} classes, {shape.dim} dimensions; MACs of the encoder: {macs}")
    if against.reference is not None:
        held = f", {short_count(against.reference.bytes)}B" if against.reference.bytes else ""
        line(f"times are set against {against.reference.what}: {1e3 * against.reference.seconds:.1f} ms{held}")
    block("\nper image\n")
    beside = (shape.classes, shape.dim) == PAPER_SIZES  # the paper's numbers are for its own sizes only
    print_rows([{**_computation(row), **(_papers(row) if beside else {})} for row in rows], False)
    block("\nbytes per sync of one client, up + down (in brackets with entropies, validity and scales)\n")
    print_rows([_bytes(row, beside) for row in rows if row.traffic], False)
    block(f"\na sync of all {clients} clients, at the server\n")
    print_rows([_server(row) for row in rows if row.server], False)
    for share in _shares(rows, against, beside):
        line(share)
    block(_NOTES)


def _computation(row: CostRow) -> dict[str, Any]:
    from ..analysis.cost import short_count

    direct, own, measured = row.direct_total, row.own_total, row.measured
    total = None if row.encoder_macs is None or direct is None else row.encoder_macs + direct
    return {
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


def _papers(row: CostRow) -> dict[str, Any]:
    paper = row.paper
    return {
        "paper: MACs": paper.macs if paper else "-",
        "paper: ms": paper.runtime_ms if paper else "-",
        "paper: memory": f"{paper.memory_gb} G" if paper else "-",
    }


def _bytes(row: CostRow, beside: bool) -> dict[str, Any]:
    from ..analysis.cost import short_count

    assert row.traffic is not None
    cells = {
        name: f"{short_count(t.up)} + {short_count(t.down)} = {short_count(t.vectors)} ({short_count(t.whole)})"
        for name, t in row.traffic.items()
    }
    paper = row.paper.bytes_per_round if row.paper else ""
    return {"method": row.label, **cells, **({"paper (fp16)": paper or "-"} if beside else {})}


def _server(row: CostRow) -> dict[str, Any]:
    from ..analysis.cost import short_count

    assert row.server is not None
    terms = " + ".join(f"{short_count(macs)} {name}" for name, macs in row.server.items())
    return {"method": row.label, "MACs": short_count(sum(row.server.values())), "of which": terms}


def _shares(rows: list[CostRow], against: _Encoder, beside: bool) -> Iterator[str]:
    """Yield the size of a round in per cent of the encoder, which is sent once, beside the paper's statement."""
    from ..analysis.cost import PAPER_SHARE, paper_costs, short_count

    if against.bytes is None:
        return
    printed = f"; paper: {paper_costs()['clip'].bytes_per_round}" if beside else ""
    yield ""
    yield f"the encoder in fp16, sent once: {short_count(against.bytes)}{printed}"
    for row in rows:
        if row.traffic:
            claim = f"; paper: {PAPER_SHARE}" if beside and row.name == "latte" else ""
            share = 100 * row.traffic["fp16"].vectors / against.bytes
            yield f"{row.label}: a round in fp16 is {share:.3g} % of it{claim}"


_NOTES = """
MACs: encoder passes and what is beside them, as the printed formulas have it; "here" is what this package computes;
"?" stands for the MACs of a method of your own; its bytes are shown if its class has messages(params, classes).
ms: beside the encoder, median over images; extra time: that and the other views, in per cent of one encoder pass.
Peak memory is that of the method's state and workspace, without the encoder; the paper's are with it, on a GPU.
Latte and Ristretto sync whenever a client likes; a global memory has a sync for every image.
"""
