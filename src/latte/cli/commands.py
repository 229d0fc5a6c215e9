"""The commands by name, and the group that imports each only when it is called."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from ..version import __version__

FAMILIES = {
    "Start": {
        "demo": ("latte.cli.demo:demo", "Show in seconds what adapting gains on real images."),
        "doctor": ("latte.cli.doctor:doctor", "Show what is installed and how to get what is missing."),
    },
    "Images": {
        "classify": ("latte.cli.classify:classify", "Classify images with a memory that adapts on the way."),
        "embed": ("latte.cli.data:embed", "Embed the images of a dataset into a file."),
        "export": ("latte.cli.data:export", "Write an encoder as an ONNX folder that needs no torch."),
    },
    "Fleet": {
        "task": ("latte.cli.task:task", "Create and show the task that a fleet shares."),
        "serve": ("latte.cli.serve:serve", "Run the server that the devices of a fleet sync with."),
        "edge": ("latte.cli.edge:edge", "Run a device: classify, adapt, and sync with a server."),
        "client": ("latte.cli.store:client", "List, remove and mute the clients of a server."),
        "token": ("latte.cli.store:token", "Create, rotate, revoke and list a server's tokens."),
        "store": ("latte.cli.store:store", "Back up, restore and check a server's store."),
    },
    "Research": {
        "run": ("latte.cli.experiments:run", "Run methods on benchmarks and print their accuracy."),
        "sweep": ("latte.cli.experiments:sweep", "Run methods at every value of a parameter."),
        "tune": ("latte.cli.experiments:tune", "Choose parameters on splits that are not reported."),
        "report": ("latte.cli.report:report", "Show the results of run folders as a table or a page."),
        "leaderboard": ("latte.cli.report:leaderboard", "Rank methods over all sets of run folders."),
        "diagnose": ("latte.cli.report:diagnose", "Look into the memories of a run, class by class."),
        "methods": ("latte.cli.methods:methods", "List the methods, their parameters and presets."),
        "data": ("latte.cli.data:data", "List, show, check, convert and fetch data."),
    },
    "Paper": {
        "paper": ("latte.cli.paper:paper", "Make the paper's table, figures, costs and theory."),
    },
}
COMMANDS = {name: about for family in FAMILIES.values() for name, about in family.items()}


class LazyGroup(click.Group):
    """A group whose commands are imported only when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands by family, without importing them."""
        for family, commands in FAMILIES.items():
            with formatter.section(family):
                formatter.write_dl([(f"{name:<11}", help_line) for name, (_, help_line) in commands.items()])

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """Offer near names for an unknown command."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from ..core.validate import near

            ctx.fail(f"no command {args[0]!r}; there is {', '.join(near(args[0], COMMANDS))}")
        return super().resolve_command(ctx, args)

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Read the options before the command."""
        with _safe_messages():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Read the options of the command, and run it."""
        with _safe_messages():
            return super().invoke(ctx)


@contextmanager
def _safe_messages() -> Iterator[None]:
    """Make click's messages safe for a terminal: they repeat what was typed."""
    try:
        yield
    except click.ClickException as error:
        from ..text import visible

        error.message = visible(error.message)  # type: ignore[misc]  # final only in click's types
        raise


EPILOG = """\b
Environment variables:
  LATTE_DATA     folder of embedding files, the default of --data
  LATTE_MODELS   folder of model folders: onnx:NAME is then enough
  LATTE_ENCODER  the default of --encoder
  LATTE_DEVICE   the default of --device, and where TPT tunes prompts
  LATTE_STATE    folder of a device's record, the default of --state
  LATTE_SERVER   address of a fleet's server, the default of --server
  OPENBLAS_NUM_THREADS, OMP_NUM_THREADS, MKL_NUM_THREADS
                 threads of linear algebra; worker processes use one each

\b
Completion with the Tab key (bash; also zsh and fish):
  eval "$(_LATTE_COMPLETE=bash_source latte)"
"""


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]}, epilog=EPILOG)
@click.version_option(__version__, prog_name="latte")
def cli() -> None:
    """Latte: collaborative test-time adaptation of vision-language models, without labels and without training."""
