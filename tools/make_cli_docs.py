"""Write docs/cli.md from the commands' own help.

python tools/make_cli_docs.py
"""

from pathlib import Path

import click

from latte.cli import cli

TARGET = Path(__file__).parent.parent / "docs" / "cli.md"


def sections(command: click.Command, path: tuple[str, ...] = ("latte",)):
    """Yield (name, help) of a command and of all below it."""
    # as a user's call has it: the names of the help option belong to the group and hold for all below it
    settings = {**cli.context_settings, "terminal_width": 100, "max_content_width": 100}
    context = click.Context(command, info_name=" ".join(path), **settings)
    yield " ".join(path), command.get_help(context)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            yield from sections(child, (*path, name))


def page() -> str:
    parts = ["# The command line\n\nThis page is the commands' own `--help`.\n"]
    parts += [f"## {name}\n\n```text\n{text.strip()}\n```\n" for name, text in sections(cli)]
    return "\n".join(parts)


if __name__ == "__main__":
    TARGET.write_text(page(), encoding="utf-8")
