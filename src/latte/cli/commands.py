"""The commands by name, and the group that imports each only when it is called."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from ..version import __version__

COMMANDS = {
    "demo": ("latte.cli.demo:demo", "Show what Latte and Ristretto gain on real data, in seconds."),
    "classify": (
        "latte.cli.classify:classify",
        "Say what pictures show, with a memory that adapts as it goes.",
    ),
    "embed": ("latte.cli.data:embed", "Embed the pictures of a dataset into a file, resumably."),
    "export": ("latte.cli.data:export", "Write an encoder as an ONNX folder that needs no torch."),
    "task": ("latte.cli.task:task", "Create and show the task that the clients of a federation share."),
    "serve": ("latte.cli.serve:serve", "Serve a federation: devices sync with it over HTTP."),
    "edge": ("latte.cli.edge:edge", "Run a device: classify what comes, adapt, and sync with a server."),
    "token": ("latte.cli.store:token", "Create, rotate, revoke and list the tokens of a server."),
    "client": ("latte.cli.store:client", "List and remove the clients of a federation."),
    "store": ("latte.cli.store:store", "Back up, restore and check what a server stores."),
    "run": ("latte.cli.experiments:run", "Run methods on benchmarks and print their accuracy."),
    "sweep": ("latte.cli.experiments:sweep", "Run methods at every value of a parameter."),
    "tune": ("latte.cli.experiments:tune", "Choose parameters on partitions that are not reported."),
    "report": ("latte.cli.report:report", "Show the results of run folders as a table or a page."),
    "reproduce": ("latte.cli.experiments:reproduce", "Run the paper's whole table for one benchmark."),
    "theory": ("latte.cli.report:theory", "Check the paper's theory by simulation: bounds, rates, limits."),
    "methods": ("latte.cli.methods:methods", "List the methods with their parameters, presets and grids."),
    "data": ("latte.cli.data:data", "List, show, check and convert embedding files."),
    "figure": ("latte.cli.report:figure", "Draw the figures of the paper for a benchmark."),
    "cost": ("latte.cli.cost:cost", "What each method costs: computation, time, memory, bytes per round."),
    "diagnose": ("latte.cli.cost:diagnose", "Look into the memories of a run, class by class."),
    "doctor": ("latte.cli.doctor:doctor", "Say what is installed and what is missing, and how to get it."),
}


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
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_line) for name, (_, help_line) in COMMANDS.items()])

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
  LATTE_STATE    folder of a device's record, the default of --state
  LATTE_SERVER   address of a federation's server, the default of --server
  OPENBLAS_NUM_THREADS, OMP_NUM_THREADS, MKL_NUM_THREADS
                 threads of linear algebra; worker processes use one each

\b
Completion of commands, options and files with the Tab key (bash; also zsh and fish):
  eval "$(_LATTE_COMPLETE=bash_source latte)"
"""


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]}, epilog=EPILOG)
@click.version_option(__version__, prog_name="latte")
def cli() -> None:
    """Latte: collaborative test-time adaptation of vision-language models, without labels and without training."""
