"""``latte reproduce``: the paper's table for one benchmark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from .common import command_line, drawn, or_exit
from .output import line
from .report import FORMATS, by_name, write

if TYPE_CHECKING:
    from ..experiment.plan import Plan
    from ..report.reproduce import Source


@click.command()
@click.argument("benchmark", type=click.Choice(["vlcs", "terra", "cifar10c", "cifar100c"]))
@click.option("--backbone", type=click.Choice(["ViT-B/16", "RN50"]), default="ViT-B/16", show_default=True)
@click.option("--data", type=click.Path(path_type=Path), help="Folder of the embedding files [default: $LATTE_DATA].")
@click.option("--text-encoder", help="hf:ID or onnx:DIR of the same model, for TPT, which tunes a prompt.")
@click.option("--seeds", default="0-4", show_default=True, help="Such as 0-4 or 0,2,7.")
@click.option("--runs", type=click.Path(path_type=Path), default=Path("runs"), show_default=True, help="Run folders.")
@click.option("--format", "kind", type=click.Choice(FORMATS), help="Default: what --out ends in, else text.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Write to a file instead of stdout.")
def reproduce(
    benchmark: str,
    backbone: str,
    data: Path | None,
    text_encoder: str | None,
    seeds: str,
    runs: Path,
    kind: str | None,
    out: Path | None,
) -> None:
    """Run every method of the paper on one of its benchmarks and show the paper's numbers beside.

    It needs two embedding files in the data folder, for example vlcs-vit-b-16.safetensors and, for VTE, TPT and Zero,
    vlcs-vit-b-16-views64.safetensors. What is finished is kept in the run folders and not done again.
    """
    from ..data.catalogue import data_folder
    from ..experiment.config import parse_seeds
    from ..report.reproduce import plans, sources

    found = _there(sources(benchmark, backbone, data_folder(data)), text_encoder)
    made = plans(found, parse_seeds(seeds), text_encoder)
    or_exit(lambda: _run(made, runs))
    write(_rendered([runs / plan.name for plan in made], benchmark, backbone, kind or by_name(out)), out)


def _there(files: tuple[Source, Source], text_encoder: str | None) -> list[Source]:
    """Return the files to use: the first must be there; without the second, the table says which rows it lacks."""
    from ..report.paper import display
    from ..report.reproduce import needing_text_encoder

    plain, viewed = files
    if not plain.path.is_file():
        raise ValueError(plain.missing())
    if not viewed.path.is_file():
        line(f"left out: {viewed.missing()}", err=True)
        return [plain]
    for name in needing_text_encoder() if text_encoder is None else ():
        line(f"left out: {display(name)}, which needs the text encoder itself: --text-encoder", err=True)
    return [plain, viewed]


def _run(made: list[Plan], runs: Path) -> None:
    from ..experiment.run import Options, execute

    for plan in made:
        for _ in drawn(execute(plan, runs, Options(command=command_line())), len(plan.items()), plan.config.benchmark):
            pass


def _rendered(folders: list[Path], benchmark: str, backbone: str, kind: str) -> str:
    from ..report.page import rendered
    from ..report.reproduce import one_name
    from ..report.runs import encoders, merged, read_run
    from ..report.tables import build_table

    found = [read_run(folder) for folder in folders]
    encoder = next(iter(encoders(found).values()), None)
    return rendered([build_table(one_name(merged(found), benchmark), encoder, backbone)], found, kind)
