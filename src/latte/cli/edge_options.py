"""What ``latte edge`` is called with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .arguments import Folder, InputFile, OutputFile
from .options import ENCODER, MAX_PIXELS, PLUGINS, Command
from .output import silence_retries
from .run_options import collect_options

if TYPE_CHECKING:
    from ..core.privacy import Privacy
    from ..edge.joining import Membership

STATE = click.option(
    "--state",
    type=Folder(),
    envvar="LATTE_STATE",
    show_envvar=True,
    help="Folder of the device's record. Default: one in your home folder.",
)
_OPTIONS: list[Callable[[Command], Command]] = [
    click.argument("files", nargs=-1, type=click.Path(path_type=Path)),
    click.option(
        "--server",
        required=True,
        envvar="LATTE_SERVER",
        show_envvar=True,
        help="Address of latte serve, or folder:DIR: a folder in which a Flower node carries messages.",
    ),
    click.option("--token-file", type=InputFile(), help="File with the token of this device (see: latte token)."),
    click.option("--watch", type=Folder(exists=True), help="Classify pictures as they arrive in this folder."),
    click.option(
        "--from",
        "listed",
        metavar="LIST",
        help="Classify the files that a list names, one per line; -: standard input.",
    ),
    click.option("--name", help="Name of this device. Default: that of the token, or one made from the machine's."),
    STATE,
    ENCODER,
    click.option("--any-encoder", is_flag=True, help="Take an encoder of another fingerprint than the task's."),
    click.option("--threads", type=click.IntRange(0), default=0, show_default=True, help="Of the encoder; 0: all."),
    MAX_PIXELS,
    click.option(
        "--precision",
        type=click.Choice(["exact", "fp32", "fp16", "int8", "int4"]),
        default="int8",
        show_default=True,
        help="Of vectors on the way to the server and back.",
    ),
    click.option(
        "--sync-seconds",
        metavar="SECONDS",
        type=click.FloatRange(0),
        default=60.0,
        show_default=True,
        help="Sync after this time at the latest, if there is anything new; 0: only when the task says so.",
    ),
    click.option(
        "--sync-pause",
        metavar="SECONDS",
        type=click.FloatRange(0),
        default=1.0,
        show_default=True,
        help="Wait at least this long between two syncs, however fast pictures come.",
    ),
    click.option(
        "--least-images",
        metavar="N",
        type=click.IntRange(1),
        default=1,
        show_default=True,
        help="Share a class only from so many images on.",
    ),
    click.option(
        "--noise",
        metavar="LENGTH",
        type=click.FloatRange(0),
        default=0.0,
        show_default=True,
        help="Add noise of this length to each class that is shared; what that guarantees is printed.",
    ),
    PLUGINS,
    click.option("--server-ca", type=InputFile(), help="Certificate of the authority that signed the server's."),
    click.option("--cert", type=InputFile(), help="Certificate of this device, for a server with --client-ca."),
    click.option("--key", type=InputFile(), help="The key of --cert."),
    click.option("--out", type=OutputFile(), help="Write the lines to this file instead of standard output."),
]


@dataclass(frozen=True, slots=True)
class EdgeOptions:
    """The options of a call."""

    files: tuple[Path, ...]
    server: str
    token_file: Path | None
    watch: Path | None
    listed: str | None
    name: str | None
    state: Path | None
    encoder: str
    any_encoder: bool
    threads: int
    max_pixels: int
    precision: str
    sync_seconds: float
    sync_pause: float
    least_images: int
    noise: float
    plugins: tuple[Path, ...]
    server_ca: Path | None
    cert: Path | None
    key: Path | None
    out: Path | None

    def check(self) -> None:
        """Refuse a call that names no pictures, or names them in two ways."""
        ways = [bool(self.files), self.watch is not None, self.listed is not None]
        if sum(ways) != 1:
            raise click.UsageError("give FILES, --watch DIR or --from LIST: one of them")

    @property
    def folder(self) -> Path:
        """The folder of the device's record."""
        return state_folder(self.state)

    def membership(self) -> Membership:
        """Return how to talk to the server; one attempt per sync, because the device has its own pauses."""
        from ..edge.http_calls import Connection
        from ..edge.joining import Membership

        silence_retries()
        connection = Connection(attempts=1, authority=self.server_ca, certificate=self.cert, key=self.key)
        return Membership(
            self.server, None, self.name, self.precision, connection, self.privacy, token_file=self.token_file
        )

    @property
    def privacy(self) -> Privacy:
        """What is done to uploads."""
        from ..core.privacy import Privacy

        return Privacy(self.least_images, self.noise)

    def paths(self) -> Iterator[Path]:
        """Return the files that were named, as they come; one that is not there is refused at once."""
        from ..edge.classify import find_pictures
        from ..edge.device_file import absolute_name

        if self.listed is not None:
            return _listed(self.listed)
        return (Path(absolute_name(path)) for path in find_pictures(self.files))


def _listed(name: str) -> Iterator[Path]:
    from ..edge.device_file import absolute_name

    with click.open_file(name, encoding="utf-8", errors="surrogateescape") as lines:
        yield from (Path(absolute_name(Path(line.rstrip("\r\n")))) for line in lines if line.strip())


def state_folder(chosen: Path | None) -> Path:
    """Return the folder of a device's record."""
    from ..edge.joining import default_state_folder

    return chosen or default_state_folder()


def edge_options(command: Command) -> Command:
    """Add the options; the command gets them as ``chosen``."""
    return collect_options(command, EdgeOptions, _OPTIONS)
