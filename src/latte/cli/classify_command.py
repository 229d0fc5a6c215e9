"""``latte classify``: pictures to labels, in one line."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import click

from .classify_inputs import ClassifyOptions, Inputs, check_inputs, classify_options
from .classify_text import answer_text, counts_text, header_text, label_width, memory_text
from .edge_text import course_lines, labelled_lines
from .output import line, problem
from .stop import Stopped, postpone_stop

if TYPE_CHECKING:
    from ..core.zero_shot import ZeroShot
    from ..edge.classify import Answer, EmbeddedPicture
    from ..edge.learning import Learning
    from ..encoders import Encoder


@click.command()
@classify_options
def classify(chosen: ClassifyOptions) -> None:
    """Say what the pictures show: IMAGES are files or folders.

    The method adapts as it goes, from the pictures themselves; with --memory it goes on where it was the last time.
    Ristretto syncs with itself, after 1, 2, 4, 8 and 16 pictures and then after every 16. The file is saved on the way,
    at the end, and on Ctrl-C: after an interruption, the same command goes on with the next picture, and so does the
    table of --csv. One process at a time may use them. An unreadable picture is reported and makes the exit code 1.

    Which method: Latte is the default; it is published, and holds against hostile clients. Ristretto is for devices of
    one owner that see one domain each. Pictures that mix domains gain nothing with either (420 mixed pictures: -1.9
    points with Latte, +0.2 with Ristretto).

    The probability is that of the label in the adapted model: a softmax of its scores, at a temperature that needs no
    labels (with Latte, all in all as certain as the model without the memory). How often such an answer is right, only
    labelled pictures can tell (docs/calibration.md). In JSON and CSV there are also the probability of the model's own
    answer without the memory, and its certainty, 1 minus the entropy.
    """
    with ExitStack() as stack:
        inputs = check_inputs(chosen, stack)
        model, task = _load(chosen.encoder, inputs)
        bad = Classifying(chosen, inputs, model, task).run()
    if bad:
        sys.exit(1)


def _load(encoder: str, inputs: Inputs) -> tuple[Encoder, ZeroShot]:
    from ..encoders import load_encoder, zero_shot

    model = load_encoder(encoder)
    return model, zero_shot(model, inputs.names, inputs.templates)


class Classifying:
    """One call: what is printed, what is in the table and what is in the memory are always the same pictures."""

    def __init__(self, chosen: ClassifyOptions, inputs: Inputs, model: Encoder, task: ZeroShot) -> None:
        from ..edge.tally import Tally

        self.chosen, self.inputs, self.model, self.task = chosen, inputs, model, task
        self.method = chosen.create_method(task)
        self.learning = self._learning()
        self.tally, self.width = Tally(), label_width(inputs.names)
        self.labelled: list[Answer] = []  # answers whose true label is known

    def _learning(self) -> Learning | None:
        from ..edge.learning import Learning

        file, files, table = self.inputs.memory, self.inputs.files, self.inputs.table
        if file is None:
            return None
        sync = table.sync if table else lambda: None
        learning = Learning(file, self.method, self.task, files, self.chosen.save_every, sync)
        if learning.start:
            problem(f"going on after {learning.start} of {len(files)} pictures, which {file.name} covers")
        return learning

    def run(self) -> int:
        """Answer every picture, and return how many are unreadable."""
        from ..edge.classify import embed_files

        start = self.learning.start if self.learning else 0
        self._begin()
        try:
            for picture in embed_files(self.model, self.inputs.files, start, self.chosen.max_pixels):
                with postpone_stop():  # a signal waits until the picture is learnt, printed and counted
                    self._answer(picture)
            with postpone_stop():
                self._finish()
        except BaseException as reason:  # a signal, a pipe that nobody reads any more, a full disk, a failing encoder
            self._save_after(reason)
            raise
        return self.tally.counts().unreadable

    def _save_after(self, reason: BaseException) -> None:
        """Save what was learnt until ``reason`` ended the work; a signal then says how to go on."""
        stopped = isinstance(reason, Stopped)
        with suppress(OSError) if stopped else nullcontext():  # a full disk: the last save counts
            hint = _saved(self.learning) if self.learning else self._rows_hint()
            if isinstance(reason, Stopped):
                reason.hint = hint

    def _rows_hint(self) -> str:
        """Return what a call without a memory leaves behind; empty where it is nothing."""
        if not self.inputs.table:
            return ""
        done = self.tally.counts().pictures
        rows = f"{self.chosen.csv} has the rows of {done} of {len(self.inputs.files)} pictures"
        return f"{rows}: without --memory, the same command starts over"

    def _begin(self) -> None:
        if table := self.inputs.table:
            table.open()
            if table.missing:
                problem(f"{table.path} is new: the rows of the first {table.missing} pictures are not in it")
        if not self.chosen.as_json:
            line(header_text(self.width))

    def _answer(self, picture: EmbeddedPicture) -> None:
        from ..edge.classify import answer_picture

        answer = answer_picture(picture, self.task, self.method)
        self.tally.count(answer)
        if self.inputs.labels and (name := os.path.abspath(answer.file)) in self.inputs.labels:  # noqa: PTH100
            self.labelled.append(replace(answer, file=name))
        try:
            if self.inputs.table:
                self.inputs.table.add(answer)
            self._show(answer)
        finally:  # it has been learnt, whether or not anybody reads the line
            if self.learning:
                self.learning.count()

    def _show(self, answer: Answer) -> None:
        from ..edge.device_file import json_line

        if self.chosen.as_json:
            line(json_line(asdict(answer)))
        elif answer.problem is not None:
            problem(answer.problem)
        else:
            line(answer_text(answer, self.width))

    def _finish(self) -> None:
        """Save everything, and say what happened."""
        from ..edge.alone import fill_of

        if self.learning:
            self.learning.finish()
        if self.inputs.table:
            self.inputs.table.close()
        saved = str(self.chosen.memory or "")
        memory = memory_text(fill_of(self.method), self.task.classes, saved)
        table = f"table: {self.chosen.csv}" if self.chosen.csv else ""
        for text in (counts_text(self.tally.counts()), *self._evidence(), memory, table):
            if text:
                line(text, err=True)

    def _evidence(self) -> Iterator[str]:
        """Yield what can be said about whether adapting helped."""
        from ..edge.evidence import compare_answers

        yield from course_lines(self.tally.course.stretches())
        if self.chosen.labels and not self.labelled:
            yield f"accuracy unknown: {self.chosen.labels} names none of these pictures"
        yield from labelled_lines(compare_answers(self.labelled, self.inputs.labels))


def _saved(learning: Learning) -> str:
    """Save what was learnt until a signal came, and return how to go on."""
    file, total = learning.file.name, len(learning.files)
    if learning.finished:
        return f"all {total} pictures are done, and {file} has learnt from them"
    if learning.done > learning.start:
        learning.save()
    return f"{learning.done} of {total} pictures are done and saved in {file}: run the same command again to go on"
