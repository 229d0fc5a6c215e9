"""``latte task``: what the devices of a fleet agree on, in one file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from . import options
from .output import line

if TYPE_CHECKING:
    from ..wire.task import Task


@click.group()
def task() -> None:
    """Create and show task files: classes, text embeddings, method and encoder of a fleet."""


@task.command("create")
@click.argument("out", type=options.OutputFile())
@click.option(
    "--encoder",
    envvar="LATTE_ENCODER",
    show_envvar=True,
    help="onnx:DIR, hf:ID, openclip:MODEL/WEIGHTS, local:DIR; DIR may be a name in the folder $LATTE_MODELS.",
)
@options.DEVICE
@options.NUMBERS
@options.BATCH
@click.option("--classes", "classnames", help="Class names, comma-separated, or a file with one per line.")
@options.TEMPLATES
@options.DESCRIPTIONS
@click.option("--benchmark", help="Take classes and text embeddings from an embedding file instead of an encoder.")
@options.DATA
@click.option(
    "--method",
    "spec",
    metavar="NAME[:PRESET][+KEY=VALUE...]",
    default="latte",
    show_default=True,
    help="How devices adapt: latte, ristretto, or a method of your own.",
)
@click.option(
    "--trust",
    type=click.Choice(["open", "fleet"]),
    help="Ristretto: fleet if every device is yours; open (the default) limits what hostile ones can do.",
)
@options.PLUGINS
@click.option(
    "--sync",
    type=click.Choice(["every", "doubling", "powers"]),
    help="When a client syncs: every --period images; doubling: after 1, 2, 4, 8, 16 images, then every --period; "
    "powers: after 1, 2, 4, 8, ... images (default: the method's own).",
)
@click.option("--period", type=click.IntRange(1), default=16, show_default=True, help="Images between two syncs.")
@options.NEAR_COPY
def create(
    out: Path,
    encoder: str | None,
    device: str,
    compute: str,
    batch: int,
    classnames: str | None,
    templates: str | None,
    descriptions: Path | None,
    benchmark: str | None,
    data: Path | None,
    spec: str,
    trust: str | None,
    plugins: tuple[Path, ...],
    sync: str | None,
    period: int,
    near_copy: float,
) -> None:
    """Write the task file OUT.

    Give --encoder and --classes, or --benchmark.

    Which method: Latte is the default; it is published, and holds while few clients are hostile. Ristretto is for
    devices of one owner that see one domain each. A device whose images mix domains gains nothing with either (420
    mixed images: -1.9 points with Latte, +0.2 with Ristretto).
    """
    from ..data.catalogue import find_benchmark, read_benchmark
    from ..edge.classify.classify import with_near_copy
    from ..edge.joining import identify, make_task
    from ..encoders import read_descriptions, read_templates, zero_shot
    from ..encoders.prompts import class_descriptions, use_templates
    from ..experiment.config import parse_method
    from ..methods import describe, resolve
    from ..wire.task import write_task
    from .classify import read_classnames

    if (benchmark is None) == (encoder is None or classnames is None):
        raise click.UsageError("give --encoder and --classes, or --benchmark")
    if benchmark is not None and (templates or classnames or descriptions):
        raise click.UsageError(
            "--classes, --templates and --descriptions go with --encoder: a benchmark has its text embeddings"
        )
    options.load_plugins(plugins)
    chosen = parse_method(spec)
    given = with_near_copy(describe(chosen["name"]).params, _with_trust(chosen, trust), near_copy)
    params = resolve(chosen["name"], given, chosen["preset"])
    identity = None
    prompts: tuple[str, ...] = ()
    sentences: dict[str, tuple[str, ...]] = {}
    if benchmark is not None:
        classifier = read_benchmark(find_benchmark(benchmark, data)).zero_shot
    else:
        names = read_classnames(str(classnames))
        sentences = class_descriptions(read_descriptions(descriptions), names) if descriptions else {}
        prompts = use_templates(None if templates is None else read_templates(templates), sentences)
        model = options.open_encoder(str(encoder), device, compute)
        classifier, identity = zero_shot(model, names, prompts or None, batch, descriptions=sentences), identify(model)
    made = make_task(
        classifier,
        chosen["name"],
        params,
        encoder=identity,
        templates=prompts,
        sync=sync,
        period=period,
        descriptions=sentences,
    )
    write_task(out, made)
    _show(made, False)


def _with_trust(chosen: dict[str, Any], trust: str | None) -> dict[str, Any]:
    """Return the parameters of a served method: where it has a ``trust`` and none is given, that is "open"."""
    from dataclasses import fields

    from ..methods import describe

    given: dict[str, Any] = chosen["params"]
    if "trust" not in {field.name for field in fields(describe(chosen["name"]).params)}:
        if trust is not None:
            raise click.UsageError(f"--trust: {chosen['name']} has no such parameter; it is for ristretto")
        return given
    if trust is not None and given.get("trust", trust) != trust:
        raise click.UsageError(f"--trust {trust} and --method {chosen['label']} do not agree")
    return {"trust": trust or "open", **given}


@task.command("add-class")
@click.argument("file", type=options.InputFile())
@click.argument("out", type=options.OutputFile())
@click.argument("classnames", metavar="CLASS...", nargs=-1, required=True)
@click.option(
    "--encoder",
    envvar="LATTE_ENCODER",
    show_envvar=True,
    required=True,
    help="The encoder of the task: onnx:DIR, hf:ID, openclip:MODEL/WEIGHTS, local:DIR.",
)
@options.DEVICE
@options.NUMBERS
@options.BATCH
@options.DESCRIPTIONS
@options.PLUGINS
def add_class(
    file: Path,
    out: Path,
    classnames: tuple[str, ...],
    encoder: str,
    device: str,
    compute: str,
    batch: int,
    descriptions: Path | None,
    plugins: tuple[Path, ...],
) -> None:
    """Write the task OUT: that of FILE, which each CLASS has joined.

    Start the server again with OUT and the same folder. Devices get it with their next sync, and go on with what they
    have learnt.
    """
    from ..edge.joining import check_encoder, next_version
    from ..encoders import read_descriptions, zero_shot
    from ..encoders.prompts import class_descriptions
    from ..wire.task import read_task, write_task

    options.load_plugins(plugins)
    before = read_task(file)
    names = (*before.zero_shot.classnames, *classnames)
    known = {name: tuple(several) for name, several in before.descriptions.items()}
    sentences = {**known, **(class_descriptions(read_descriptions(descriptions), classnames) if descriptions else {})}
    model = options.open_encoder(encoder, device, compute)
    check_encoder(before, model)
    made = next_version(
        before, zero_shot(model, names, before.templates or None, batch, descriptions=sentences), sentences
    )
    write_task(out, made)
    _show(made, False)


@task.command("remove-class")
@click.argument("file", type=options.InputFile())
@click.argument("out", type=options.OutputFile())
@click.argument("classnames", metavar="CLASS...", nargs=-1, required=True)
@options.PLUGINS
def remove_class(file: Path, out: Path, classnames: tuple[str, ...], plugins: tuple[Path, ...]) -> None:
    """Write the task OUT: that of FILE, which each CLASS has left."""
    from ..core.zero_shot import ZeroShot
    from ..edge.joining import next_version
    from ..wire.task import read_task, write_task

    options.load_plugins(plugins)
    before = read_task(file)
    here = before.zero_shot.classnames
    if unknown := [name for name in classnames if name not in here]:
        raise click.UsageError(f"{unknown[0]!r} is none of the classes: {', '.join(here)}")
    left = [place for place, name in enumerate(here) if name not in classnames]
    names = tuple(here[place] for place in left)
    made = next_version(before, ZeroShot(before.zero_shot.text[left], names, before.zero_shot.scale))
    write_task(out, made)
    _show(made, False)


@task.command("show")
@click.argument("file", type=options.InputFile())
@options.JSON
def show(file: Path, as_json: bool) -> None:
    """Show what the task FILE says."""
    from ..wire.task import read_task

    _show(read_task(file), as_json)


def _show(made: Task, as_json: bool) -> None:
    classifier = made.zero_shot
    facts = {
        "fingerprint": made.fingerprint,
        "classes": list(classifier.classnames),
        "dimensions": classifier.dim,
        "scale": classifier.scale,
        "method": made.method,
        "parameters": dict(made.params),
        "sync": f"{made.sync}, period {made.period}",
        "encoder": made.encoder.name if made.encoder else "none: embeddings come from elsewhere",
        "templates": list(made.templates),
        "descriptions": {name: len(sentences) for name, sentences in made.descriptions.items()},
        "joined": list(made.joined),
    }
    if as_json:
        line(json.dumps(facts))
        return
    for key, value in facts.items():
        if value in ([], {}):
            continue
        shown = ", ".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else value
        shown = ", ".join(map(str, shown)) if isinstance(shown, list) else shown
        line(f"{key:<12} {shown}")
