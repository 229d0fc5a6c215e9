"""``latte edge``: the program of a device, and what it has done."""

from __future__ import annotations

import errno
import json
import os
import select
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from . import options
from .answer_text import counted, summary_lines
from .output import line, patient_line, problem
from .serve import notifier
from .stop import Stopped, postpone_stop, raise_pending

if TYPE_CHECKING:
    from ..edge.device.device import DeviceLoop
    from ..edge.device.feeds import PictureFeed
    from ..edge.device.record import NumberedAnswer
    from ..edge.device.report import AnswerLog

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_RETRY = 2.0  # seconds between two attempts to write to a full disk
_COMPLAIN = 60.0  # seconds between two complaints about it
_TICK = 0.2  # seconds in which a signal is noticed
UNWELL = 3  # the exit code for a device that does not run, or has a problem: "not running" of the LSB


STATE = click.option(
    "--state",
    type=options.Folder(),
    envvar="LATTE_STATE",
    show_envvar=True,
    help="Folder of the device's record. Default: one in your home folder.",
)
_OPTIONS: list[options.Option] = [
    click.argument("files", nargs=-1, type=click.Path(path_type=Path)),
    click.option(
        "--server",
        required=True,
        envvar="LATTE_SERVER",
        show_envvar=True,
        help="Address of latte serve, or folder:DIR: a folder in which a Flower node carries messages.",
    ),
    click.option("--watch", type=options.Folder(exists=True), help="Classify images as they arrive in this folder."),
    click.option(
        "--from",
        "listed",
        metavar="LIST",
        help="Classify the files that a list names, one per line; -: standard input.",
    ),
    click.option("--name", help="Name of this device. Default: that of the token, or one made from the machine's."),
    STATE,
    options.ENCODER,
    options.DEVICE,
    options.NUMBERS,
    click.option("--any-encoder", is_flag=True, help="Take an encoder that is not the task's."),
    click.option(
        "--threads", type=click.IntRange(0), default=0, show_default=True, help="Threads of the encoder; 0: all."
    ),
    options.MAX_PIXELS,
    options.PRECISION,
    click.option(
        "--sync-seconds",
        metavar="SECONDS",
        type=click.FloatRange(0),
        default=60.0,
        show_default=True,
        help="Sync after this time at the latest, if there is something new; 0: only as often as the task says.",
    ),
    click.option(
        "--sync-pause",
        metavar="SECONDS",
        type=click.FloatRange(0),
        default=1.0,
        show_default=True,
        help="Wait at least this long between two syncs, however fast images come.",
    ),
    click.option(
        "--least-images",
        metavar="N",
        type=click.IntRange(1),
        default=1,
        show_default=True,
        help="Upload a class only when so many images of it were seen.",
    ),
    click.option(
        "--noise",
        metavar="LENGTH",
        type=click.FloatRange(0),
        default=0.0,
        show_default=True,
        help="Add noise of this length to each class that is uploaded; what that guarantees is printed.",
    ),
    click.option("--without", metavar="CLASS", multiple=True, help="A class that cannot be here; may be repeated."),
    options.PLUGINS,
    *options.connection_options("the device's", "this device"),
    click.option(
        "--out", type=options.OutputFile(), help="Write the predictions to this file, not to standard output."
    ),
    click.option(
        "--share-labels", is_flag=True, help="With --noise: send sums of labels, too, to which no noise is added."
    ),
    options.FALLBACK,
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
    device: str
    compute: str
    any_encoder: bool
    threads: int
    max_pixels: int
    precision: str
    sync_seconds: float
    sync_pause: float
    least_images: int
    noise: float
    share_labels: bool
    fallback: bool
    without: tuple[str, ...]
    plugins: tuple[Path, ...]
    server_ca: Path | None
    cert: Path | None
    key: Path | None
    out: Path | None

    def check(self) -> None:
        """Refuse a call that names no images, or names them in two ways."""
        ways = [bool(self.files), self.watch is not None, self.listed is not None]
        if sum(ways) != 1:
            raise click.UsageError("give FILES, --watch DIR or --from LIST: one of them")

    @property
    def folder(self) -> Path:
        """The folder of the device's record."""
        return state_folder(self.state)

    def paths(self) -> Iterator[Path]:
        """Return the files that were named, as they come; one that is not there is refused at once."""
        from ..edge.classify.classify import absolute_name, find_pictures

        def listed(name: str) -> Iterator[Path]:
            with click.open_file(name, encoding="utf-8", errors="surrogateescape") as lines:
                yield from (Path(line.rstrip("\r\n")) for line in lines if line.strip())

        named = listed(self.listed) if self.listed is not None else find_pictures(self.files)
        return (Path(absolute_name(path)) for path in named)


def state_folder(chosen: Path | None) -> Path:
    """Return the folder of a device's record."""
    from ..edge.device.record import default_folder

    return chosen or default_folder()


class RoomWait:
    """Says that the disk is full, once a minute at most, and waits a little; a signal ends the wait."""

    def __init__(self) -> None:
        self._next = 0.0

    def __call__(self, error: OSError) -> None:
        """Wait before the next attempt."""
        if time.monotonic() >= self._next:
            problem(f"{error}; waiting for room")
            self._next = time.monotonic() + _COMPLAIN
        end = time.monotonic() + _RETRY
        while time.monotonic() < end:
            raise_pending()
            notifier.beat()  # it waits because it has to: to be started again would not help
            time.sleep(_TICK)


class ProblemLines:
    """Says on stderr what is wrong, and when it is over: a change at once, the next one after ``pause`` seconds.

    ``about`` begins every line.
    """

    def __init__(self, about: str = "", pause: float = 0.0) -> None:
        self._about, self._pause, self._said, self._next = about, pause, "", 0.0

    def say(self, text: str) -> None:
        """Say what is wrong now; nothing, where ``text`` is empty or has been said."""
        if text != self._said and time.monotonic() >= self._next:
            problem(f"{self._about}{text or f'over: {self._said}'}")
            self._said, self._next = text, time.monotonic() + self._pause


class AnswerLines:
    """Shows answers as lines of JSON, in ``log`` or on standard output.

    A signal ends the wait for a full disk or for somebody who reads standard output too slowly. After that, nothing
    more is written there: ``unread`` is the number of the first answer that was not.
    """

    def __init__(self, log: AnswerLog | None) -> None:
        self._log, self._wait_for_room = log, RoomWait()
        self.unread: int | None = None

    @property
    def logged(self) -> tuple[str, int] | None:
        """The file of the lines and the last answer in it; None where they go to standard output."""
        return None if self._log is None else (self._log.name, self._log.number)

    def show(self, answer: NumberedAnswer) -> None:
        """Write a line; wait for as long as that takes."""
        if self.unread is not None:
            return None
        try:
            if self._log is None:
                patient_line(answer.line(), _wait_for_reader, self._wait_after)
            while self._log is not None:
                try:
                    return self._log.add(answer)
                except OSError as error:
                    self._wait_after(error)
        except (Stopped, OSError):
            self.unread = answer.number
            raise

    def _wait_after(self, error: OSError) -> None:
        if error.errno not in NO_ROOM:
            raise error
        self._wait_for_room(error)


def _wait_for_reader(descriptor: int) -> None:
    """Return when a pipe or a terminal has room; a signal ends the wait."""
    while not select.select([], [descriptor], [], _TICK)[1]:
        raise_pending()
        notifier.beat()


class DefaultGroup(click.Group):
    """A group whose command ``run`` need not be named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put ``run`` before anything that is not the name of a command."""
        if args and args[0] not in (*self.commands, *ctx.help_option_names):
            args = ["run", *args]
        return super().parse_args(ctx, args)


@click.group(cls=DefaultGroup)
def edge() -> None:
    """Run a device, and look at what it has done.

    The word run may be left out: latte edge --watch DIR is latte edge run --watch DIR.
    """


@edge.command("run")
@lambda command: options.collect_options(command, EdgeOptions, _OPTIONS)
def run(chosen: EdgeOptions) -> None:
    """Classify images, adapt, and sync with a server.

    The images are FILES, those that a list names (--from), or those that come into a folder (--watch). The first start
    takes the task from the server and stores it; later ones need no server. Every prediction is a line of JSON. It is
    recorded before it is printed, with what was learnt: after a crash or a power cut the same command goes on with the
    next image, and none is classified twice or left out. Images wait where they are until there is time for them.

    Syncs happen in the background. Without the server the device works on, and learns from its own images only; a line
    on stderr says so. SIGTERM or Ctrl-C ends the device with exit code 0. An image that cannot be read is reported and
    makes the exit code 1.
    """
    from ..errors import need

    chosen.check()
    for module in ("msgspec", "httpx2"):
        need(module, "http")
    with ExitStack() as stack:
        running = RunningDevice(chosen, stack)
        try:
            running.work()
        except Stopped as stopped:
            stopped.hint = running.finish()
            raise
        except OSError as error:
            if running.lines.unread is None:
                raise
            reason = "nobody reads the lines any more" if isinstance(error, BrokenPipeError) else str(error)
            problem(f"{reason}; {running.finish()}")
            sys.exit(1)
        problem(running.finish())
        if running.unreadable:
            sys.exit(1)


class RunningDevice:
    """One call: the device, where its images come from and where its lines go."""

    def __init__(self, chosen: EdgeOptions, stack: ExitStack) -> None:
        from ..edge.device.report import AnswerLog, Heartbeat

        paths = chosen.paths()
        self.device = device = _open_device(chosen, stack)
        self.feed = _feed(chosen, paths, device)
        stack.callback(self.feed.close)
        log = None if chosen.out is None else stack.enter_context(closing(AnswerLog(chosen.out, chosen.folder)))
        self.lines = AnswerLines(log)
        self._bad = 0  # images without an answer
        self._problems, self._notices = ProblemLines(), ProblemLines()
        self._sync_problems = ProblemLines("sync: ", _COMPLAIN)
        self._heartbeat = stack.enter_context(closing(Heartbeat(chosen.folder)))
        problem(f"device {device.status.name!r}: {device.record.number} images recorded, syncs with {chosen.server}")

    def work(self) -> None:
        """Answer every image; a signal waits until one is recorded and its line is written."""
        answers = self.device.answers(self.feed)
        notifier.send("READY=1")
        while True:
            with postpone_stop():
                answer = next(answers, False)
                self._heartbeat.beat()
                if isinstance(answer, bool):  # there are no more
                    return
                wrong, sync = self.feed.problem, self.device.link.state.problem if self.device.link else ""
                self._problems.say(wrong)
                self._sync_problems.say(sync)
                self._notices.say(self.feed.place.notice)
                said = f"; problem: {wrong or sync}" if wrong or sync else ""
                notifier.beat(f"{self.device.record.number} images{said}")
                if answer is not None:
                    self._show(answer)

    def _show(self, answer: NumberedAnswer) -> None:
        try:
            self.lines.show(answer)
        finally:
            self.device.log = self.lines.logged or self.device.log
        if answer.answer.problem is not None:
            self._bad += 1
            problem(answer.answer.problem)

    @property
    def unreadable(self) -> int:
        """How many images of this call could not be read, also those that are recorded so from an earlier call."""
        return max(self._bad, getattr(self.feed.place, "failed", 0))

    def finish(self) -> str:
        """Save and share what is new; return what was done."""
        notifier.send("STOPPING=1")
        with suppress(OSError):  # a full disk: what is recorded counts
            for answer in self.device.flush():
                self._show(answer)
            self.device.close()
        sync = self.device.current_status().sync_problem
        away = f"; sync: {sync}" if sync else ""
        unread, folder = self.lines.unread, self.device.record.folder
        results = f"; lines that nobody read: latte edge results --state {folder} --after"
        left = f"{results} {unread - 1}" if unread is not None else ""
        bad = f"; {self.unreadable} could not be read" if self.unreadable else ""
        return f"{self.device.record.number} images are recorded in {folder}{bad}{away}{left}"


def _open_device(chosen: EdgeOptions, stack: ExitStack) -> DeviceLoop:
    """Join the fleet, load the encoder, and continue what the record has."""
    from ..core.privacy import Privacy, PrivateClient
    from ..edge.clients.calls import Connection
    from ..edge.device.program import open_loop
    from ..edge.joining import Membership
    from ..encoders import check_encoder_spec

    check_encoder_spec(chosen.encoder)
    options.load_plugins(chosen.plugins)
    connection = Connection(attempts=1, authority=chosen.server_ca, certificate=chosen.cert, key=chosen.key)
    privacy = Privacy(chosen.least_images, chosen.noise, chosen.share_labels)
    membership = Membership(  # one attempt per sync, because the device has its own pauses
        chosen.server, None, chosen.name, chosen.precision, connection, privacy, chosen.token_file, chosen.without
    )
    if membership.shows_token:
        problem(f"warning: the token goes to {chosen.server} in plain text, where others may read it: https is safe")
    device = open_loop(
        membership,
        chosen.folder,
        lambda task: options.open_encoder(chosen.encoder, chosen.device, chosen.compute, chosen.threads),
        any_encoder=chosen.any_encoder,
        seconds=chosen.sync_seconds,
        pause=chosen.sync_pause,
        on_full=RoomWait(),
        fallback=chosen.fallback,
        most_pixels=chosen.max_pixels,
    )
    stack.callback(device.record.close)
    if isinstance(device.method, PrivateClient):
        problem(f"privacy: {device.method.guarantee(device.task.zero_shot.dim)}")
    return device


def _feed(chosen: EdgeOptions, paths: Iterator[Path], device: DeviceLoop) -> PictureFeed:
    from ..edge.classify.classify import absolute_name
    from ..edge.device.feeds import NamedFiles, WatchedFolder
    from ..edge.device.program import open_feed
    from ..edge.device.watch import FolderWatch

    is_done = device.record.is_done
    watched = chosen.watch and WatchedFolder(FolderWatch(Path(absolute_name(chosen.watch)), is_done))
    return open_feed(device, watched or NamedFiles(paths, is_done))


@edge.command()
@STATE
@options.JSON
def status(state: Path | None, as_json: bool) -> None:
    """Show what a device does, and how good its predictions are.

    The exit code is for health checks: 0 if the device runs and has no problem, 3 if it does not run or has one.
    """
    from ..edge.device.record import open_to_read
    from ..edge.device.report import summarise
    from ..edge.joining import TASK_FILE
    from ..wire.task import read_task

    folder = state_folder(state)
    with closing(open_to_read(folder)) as database:
        summary = summarise(database, folder, read_task(folder / TASK_FILE).zero_shot.classes)
    for text in [json.dumps(summary.document())] if as_json else summary_lines(summary):
        line(text)
    if not summary.well:
        raise click.exceptions.Exit(UNWELL)


@edge.command()
@STATE
@click.option("--after", type=click.IntRange(0), default=0, show_default=True, help="Only later numbers than this.")
def results(state: Path | None, after: int) -> None:
    """Print the predictions of a device, each a line of JSON."""
    from ..edge.device.record import open_to_read, read_answers

    with closing(open_to_read(state_folder(state))) as database:
        for answer in read_answers(database, after):
            line(answer.line())


@edge.command()
@STATE
def retry(state: Path | None) -> None:
    """Let a device read its unreadable images again.

    A running device with --watch does so within seconds, one that does not run at its next start. A device with FILES
    or --from does so when they are named again.
    """
    from ..edge.device.record import open_record, retry_unreadable

    with closing(open_record(state_folder(state))) as database:
        count = retry_unreadable(database)
    line(f"{counted(count, 'unreadable image')} to try again")


@edge.command()
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.argument("classname", metavar="CLASS", required=False)
@click.option("--labels", "table", type=options.InputFile(), help="CSV with lines FILE,CLASS, for many images at once.")
@click.option("--none", "none_of_these", is_flag=True, help="FILE shows none of the classes; nothing is learnt.")
@click.option("--undo", is_flag=True, help="Take the label of FILE back, and what was learnt from it.")
@STATE
def label(
    file: Path | None,
    classname: str | None,
    table: Path | None,
    none_of_these: bool,
    undo: bool,
    state: Path | None,
) -> None:
    """Say what FILE really shows: CLASS. The device learns it, and the whole fleet with the next sync.

    FILE is an image that the device has classified, and that is still there, or one that it will classify. A running
    device learns within seconds, any other one at its next start. Labels also say how often the device is right, and
    whether adapting helps.
    """
    from ..core.validate import choice
    from ..edge.classify.classify import absolute_name
    from ..edge.classify.evidence import read_labels
    from ..edge.device.labels import NONE, add_labels, remove_labels
    from ..edge.device.record import open_record
    from ..errors import InputError

    names, folder = _device_classes(state), state_folder(state)
    ways = classname is not None, none_of_these, undo
    if (table is None) == (file is None) or sum(ways) != (file is not None):
        raise click.UsageError("give FILE and CLASS, FILE and --none, FILE and --undo, or --labels")
    if table is not None:
        labels = read_labels(table, names)
    else:
        assert file is not None
        if classname is not None:
            choice("class", classname, names)  # no answer of another class could be right
        labels = {absolute_name(file): NONE if none_of_these else str(classname)}
    with closing(open_record(folder)) as database:
        if undo:
            line(f"{counted(remove_labels(database, labels), 'label')} taken back")
            return
        known = {source for (source,) in database.execute("SELECT DISTINCT source FROM pictures")}
        missing = [name for name in labels if not os.path.lexists(name) and os.fsencode(name) not in known]
        if missing and file is not None:
            raise InputError(f"{missing[0]}: no such file, and no image of this name was classified")
        if missing:
            more = f", and {len(missing) - 1} more" if len(missing) > 1 else ""
            problem(f"labels of files that do not exist and were not classified: {missing[0]}{more}")
        count = add_labels(database, labels)
    line(f"{counted(len(labels), 'label')} stored, {count} of them for images that have been classified")


def _device_classes(state: Path | None) -> tuple[str, ...]:
    from ..edge.joining import TASK_FILE
    from ..errors import InputError
    from ..wire.task import read_task

    folder = state_folder(state)
    if not (folder / TASK_FILE).is_file():
        raise InputError(f"{folder}: no device has worked here; give the folder that latte edge has as --state")
    return read_task(folder / TASK_FILE).zero_shot.classnames


@edge.command()
@STATE
@click.option("--port", type=click.IntRange(0, 65_535), default=8421, show_default=True, help="Port; 0: any free one.")
@options.MAX_PIXELS
def review(state: Path | None, port: int, max_pixels: int) -> None:
    """Show a page that asks what images show.

    There is one key per class, and the device learns. The page asks first where the adapted and the zero-shot
    prediction differ, because only these images say whether adapting helps, and then where the device is least sure.
    It is for a browser on this machine; no image leaves it. On a machine without a screen: ssh -L 8421:127.0.0.1:8421
    DEVICE. Ctrl-C ends it.
    """
    from ..edge.device.review import ReviewServer

    names = _device_classes(state)
    with closing(ReviewServer(state_folder(state), names, port, max_pixels)) as server:
        line(f"review: {server.address}")
        server.serve()
