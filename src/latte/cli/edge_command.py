"""``latte edge``: the program of a device."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .edge_lines import AnswerLines, ProblemLines, RoomWait
from .edge_options import EdgeOptions, edge_options
from .edge_reading import label, results, retry, status
from .options import load_plugins
from .output import problem
from .stop import Stopped, postpone_stop
from .systemd import notifier

if TYPE_CHECKING:
    from ..edge.device import Device
    from ..edge.device_file import NumberedAnswer
    from ..edge.feeds import PictureFeed


class DefaultGroup(click.Group):
    """A group whose command ``run`` need not be named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put ``run`` before anything that is not the name of a command."""
        if args and args[0] not in (*self.commands, *ctx.help_option_names):
            args = ["run", *args]
        return super().parse_args(ctx, args)


@click.group(cls=DefaultGroup)
def edge() -> None:
    """Run a device, and look at what it has done. `latte edge …` is `latte edge run …`."""


edge.add_command(status)
edge.add_command(label)
edge.add_command(results)
edge.add_command(retry)


@edge.command("run")
@edge_options
def run(chosen: EdgeOptions) -> None:
    """Classify pictures as they come, adapt, and sync with a server: FILES, --watch DIR or --from LIST.

    The first start takes the task from the server and stores it; later ones need no server. Every answer is a line of
    JSON. It is recorded first, with what was learnt: after a crash or a power cut the same command goes on with the
    next picture, and none is classified twice or left out. Pictures wait where they are until there is time for them.
    Syncs happen in the background; a server that is away changes nothing but what is learnt from others, and is a line
    on stderr. SIGTERM or Ctrl-C ends the device with exit code 0. A picture that cannot be read is reported and makes
    the exit code 1.
    """
    chosen.check()
    _check_packages()
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
    """One call: the device, where its pictures come from and where its lines go."""

    def __init__(self, chosen: EdgeOptions, stack: ExitStack) -> None:
        paths = chosen.paths()
        self.device = _open_device(chosen, stack)
        self.feed = _feed(chosen, paths, self.device)
        stack.callback(self.feed.close)
        self.lines = AnswerLines(_log(chosen, stack))
        self._problem = self._notice = ""  # of the place of the pictures, as it was said last
        self._bad = 0  # pictures without an answer
        self._sync_problems = ProblemLines("sync: ")
        device = self.device
        problem(f"device {device.status.name!r}: {device.record.number} pictures recorded, syncs with {chosen.server}")

    def work(self) -> None:
        """Answer every picture; a signal waits until one is recorded and its line is written."""
        answers = self.device.answers(self.feed)
        more = True
        notifier.send("READY=1")
        while more:
            with postpone_stop():
                more = self._step(next(answers, False))

    def _step(self, answer: NumberedAnswer | bool | None) -> bool:
        """Show an answer; return False at the end of the pictures."""
        if isinstance(answer, bool):
            return answer
        self._say_problem(self.feed.place.problem)
        sync = self.device.link.state.problem if self.device.link is not None else ""
        self._sync_problems.say(sync)
        wrong = self.feed.place.problem or sync
        notifier.beat(f"{self.device.record.number} pictures{f'; problem: {wrong}' if wrong else ''}")
        if self.feed.place.notice and not self._notice:
            self._notice = self.feed.place.notice
            problem(self._notice)
        if answer is not None:
            self._show(answer)
        return True

    def _say_problem(self, text: str) -> None:
        """Say what is wrong with the place of the pictures, once, and when it is over."""
        if text != self._problem:
            problem(text or f"over: {self._problem}")
            self._problem = text

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
        """How many pictures of this call could not be read, also those that are recorded so from an earlier call."""
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
        unread = self.lines.unread
        left = f"; lines that nobody read: latte edge results --after {unread - 1}" if unread is not None else ""
        bad = f"; {self.unreadable} could not be read" if self.unreadable else ""
        return f"{self.device.record.number} pictures are recorded in {self.device.record.folder}{bad}{away}{left}"


def _check_packages() -> None:
    from ..core.extras import need

    for module in ("msgspec", "httpx2", "stamina"):
        need(module, "http")


def _open_device(chosen: EdgeOptions, stack: ExitStack) -> Device:
    """Join the fleet, load the encoder, and continue what the record has."""
    from dataclasses import replace

    from ..core.private_client import PrivateClient
    from ..edge.device import Device
    from ..edge.device_record import DeviceRecord
    from ..edge.joining import check_encoder, join, link_to, new_member
    from ..edge.sync_times import SyncTimes
    from ..encoders import check_encoder_spec, load_encoder

    check_encoder_spec(chosen.encoder)
    load_plugins(chosen.plugins)
    membership = chosen.membership()
    if membership.shows_token:
        problem(f"warning: the token goes to {chosen.server} in plain text, where others may read it: https is safe")
    task, name = join(membership, chosen.folder)
    method = new_member(task, chosen.privacy)
    if isinstance(method, PrivateClient):
        problem(f"privacy: {method.guarantee(task.zero_shot.dim)}")
    record = stack.enter_context(closing(DeviceRecord(chosen.folder, task.fingerprint, RoomWait())))
    encoder = load_encoder(chosen.encoder, chosen.threads)
    check_encoder(task, encoder, chosen.any_encoder)
    link = link_to(membership, task, name)
    times = SyncTimes(task.sync, task.period, chosen.sync_seconds, chosen.sync_pause)
    device = Device(encoder, task, method, record, link, times)
    device.status = replace(device.status, name=name, server=chosen.server)
    return device


def _feed(chosen: EdgeOptions, paths: Iterator[Path], device: Device) -> PictureFeed:
    from ..edge.device_file import absolute_name
    from ..edge.feeds import NamedFiles, PictureFeed, WatchedFolder
    from ..edge.watch_folder import FolderWatch
    from ..encoders import open_picture

    def prepare(path: Path) -> Any:
        return device.encoder.preprocess(open_picture(path, chosen.max_pixels))

    is_done = device.record.is_done
    if chosen.watch is not None:
        return PictureFeed(WatchedFolder(FolderWatch(Path(absolute_name(chosen.watch)), is_done)), prepare)
    return PictureFeed(NamedFiles(paths, is_done), prepare)


def _log(chosen: EdgeOptions, stack: ExitStack) -> Any:
    from ..edge.answer_log import AnswerLog

    return None if chosen.out is None else stack.enter_context(closing(AnswerLog(chosen.out, chosen.folder)))
