"""``latte doctor``: what this installation can do, and how to get the rest."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from .output import line, print_rows

if TYPE_CHECKING:
    from ..analysis.installation import EncoderState, ExtraState, Installation


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def doctor(as_json: bool) -> None:
    """Say what is installed and what is missing: extras, the engine, data, encoders, and how to get each."""
    from ..analysis.installation import inspect_installation

    state = inspect_installation()
    if as_json:
        line(json.dumps(asdict(state)))
        return
    line(f"latte {state.version}, Python {state.python}, {state.system}, {state.cores} cores")
    line("")
    print_rows([_extra_row(extra) for extra in state.extras], False)
    line("")
    print_rows([_encoder_row(encoder) for encoder in state.encoders], False)
    line("")
    for text in (*_engine(state), *_data(state), *_variables(state)):
        line(text)
    if missing := [extra for extra in state.extras if not extra.complete]:
        line("")
        for extra in missing:
            line(f"for {extra.name}: {extra.install}")


def _extra_row(extra: ExtraState) -> dict[str, object]:
    there = [f"{name} {version}" for name, version in extra.packages.items() if version]
    missing = [name for name, version in extra.packages.items() if version is None]
    state = ", ".join(there) if extra.complete else f"without {', '.join(missing) or 'an installation to ask'}"
    return {"extra": extra.name, "state": "ok" if extra.complete else "missing", "for": extra.use, "packages": state}


def _encoder_row(encoder: EncoderState) -> dict[str, object]:
    models = " ".join(f"{encoder.kind}:{name}" for name in encoder.models)
    return {
        "encoder": f"{encoder.kind}:",
        "state": f"needs {', '.join(encoder.missing)}" if encoder.missing else "ok",
        "how to get one": encoder.advice,
        "in $LATTE_MODELS": models or None,
    }


def _engine(state: Installation) -> Iterator[str]:
    about = {
        "compiled": "compiled: long runs of Latte are fast from the first second",
        "not compiled yet": "not compiled yet: the first long run does so, about 40 s, once",
        "missing": "numba is missing: Latte takes the readable simulator, 50 times slower",
    }
    yield f"engine: {about[state.loops]}"


def _data(state: Installation) -> Iterator[str]:
    files = f"{len(state.benchmarks)} embedding files" if state.benchmarks else "no embedding files yet"
    yield f"data folder: {state.data}, {files} (latte data ls; latte embed makes them)"


def _variables(state: Installation) -> Iterator[str]:
    from ..analysis.installation import VARIABLES

    for name, value in state.variables.items():
        yield f"{name}: {'not set' if value is None else value} ({VARIABLES[name]})"
