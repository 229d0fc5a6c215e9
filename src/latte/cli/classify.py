"""``latte classify``: images to predictions."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from . import answer_text, options
from .output import line, problem
from .stop import Stopped, postpone_stop

if TYPE_CHECKING:
    from ..core.types import Method
    from ..core.zero_shot import ZeroShot
    from ..edge.classify.answers import AnswerFile
    from ..edge.classify.classify import Answer, EmbeddedPicture

FILE = click.Path(dir_okay=False, path_type=Path)
_OPTIONS: list[options.Option] = [
    click.argument("images", nargs=-1, required=True, type=click.Path(path_type=Path)),
    click.option(
        "--classes", "classnames", required=True, help="Class names, comma-separated, or a file with one per line."
    ),
    options.ENCODER,
    options.DEVICE,
    options.NUMBERS,
    options.BATCH,
    options.TEMPLATES,
    options.DESCRIPTIONS,
    click.option(
        "--method",
        "spec",
        metavar="NAME[:PRESET][+KEY=VALUE...]",
        default="latte",
        show_default=True,
        help="How to adapt: latte, ristretto, tda, dmn, or clip for zero-shot predictions (see: latte methods).",
    ),
    options.PLUGINS,
    click.option("--zero-shot", "spec", flag_value="clip", help="The same as --method clip: do not adapt."),
    click.option("--memory", type=FILE, help="File of the memory: continue from it, and save to it."),
    click.option(
        "--save-every",
        metavar="SECONDS",
        type=click.IntRange(0, 86_400),
        default=10,
        show_default=True,
        help="How often --memory is saved on the way.",
    ),
    options.NEAR_COPY,
    options.MAX_PIXELS,
    click.option(
        "--labels",
        type=options.InputFile(),
        help="CSV with lines FILE,CLASS: the labels of some images. Each is learnt after it has judged the prediction.",
    ),
    options.FALLBACK,
    click.option(
        "--flag",
        metavar="SHARE",
        type=click.FloatRange(0, 0.5),
        default=0.0,
        help="Flag about this share of the images as unlike the known classes, such as 0.05.",
    ),
    click.option("--out", type=FILE, help="Write a row per image to this CSV file, too."),
    click.option("--json", "as_json", is_flag=True, help="Print JSON, a line per image."),
    click.option(
        "--sigmoid",
        is_flag=True,
        help="Show how likely each class is by itself, whatever the others: for SigLIP, without the memory.",
    ),
]


@dataclass(frozen=True, slots=True)
class ClassifyOptions:
    """The options of a call."""

    images: tuple[Path, ...]
    classnames: str
    encoder: str
    device: str
    compute: str
    batch: int
    templates: str | None
    descriptions: Path | None
    spec: str
    plugins: tuple[Path, ...]
    memory: Path | None
    save_every: int
    near_copy: float
    max_pixels: int
    labels: Path | None
    fallback: bool
    flag: float
    out: Path | None
    as_json: bool
    sigmoid: bool

    def create_method(self, task: ZeroShot) -> Method:
        """Return the method that adapts; one that remembers nothing is refused where there is a memory file."""
        from ..edge.classify.classify import create_alone
        from ..experiment.config import parse_method

        chosen = parse_method(self.spec)
        method = create_alone(chosen["name"], task, chosen["params"], chosen["preset"], self.near_copy)
        if self.memory is not None and not method.state():
            raise click.UsageError(f"{chosen['name']} remembers nothing: leave --memory out")
        return method


def read_classnames(text: str) -> list[str]:
    """Return class names: separated by commas, or the lines of the file that ``text`` names."""
    from ..encoders.prompts import check_classnames
    from ..errors import refuse
    from ..files.documents import read_lines

    is_file = "," not in text and os.path.exists(text)  # noqa: PTH110  Path.exists fails on very long names
    names = read_lines(Path(text), "classes") if is_file else text.split(",")
    names = [name.strip() for name in names if name.strip()]
    if len(names) < 2:
        got = f"{len(names)} class in the file {text}" if is_file else f"{text!r}, which is no file"
        raise refuse("classes", got, "a file with one name per line, or at least two names: --classes cat,dog")
    check_classnames(names)
    return names


@click.command()
@lambda command: options.collect_options(command, ClassifyOptions, _OPTIONS)
def classify(chosen: ClassifyOptions) -> None:
    """Classify IMAGES, which are files or folders.

    The method adapts on the way, from the images themselves; with --memory it continues from where it was the last
    time. Ristretto syncs with itself, after 1, 2, 4, 8 and 16 images and then after every 16. The file is saved on the
    way, at the end, and on Ctrl-C: after an interruption, the same command continues with the next image, and so does
    the table of --out. One process at a time may use them. An unreadable image is reported and makes the exit code 1.

    Which method: Latte is the default; it is published, and holds while few clients are hostile. Ristretto is for
    devices of one owner that see one domain each. Images that mix domains gain nothing with either (420 mixed
    images: -1.9 points with Latte, +0.2 with Ristretto).

    The probability is that of the adapted prediction: a softmax of its scores, at a temperature that is found without
    labels (with Latte, so that adapted and zero-shot predictions are equally certain on average). Only labelled images
    can tell how often a prediction is right (docs/reports.md). JSON and CSV also have the probability of the
    zero-shot prediction, and its certainty, 1 minus the entropy. All of these compare the classes: methods see a
    softmax of the scaled cosines, also of SigLIP; --sigmoid shows what SigLIP was trained for.
    """
    with ExitStack() as stack:
        bad = Classifying(chosen, stack).run()
    if bad:
        sys.exit(1)


class Classifying:
    """One call: what is printed, what is in the table and what is in the memory are always the same images."""

    def __init__(self, chosen: ClassifyOptions, stack: ExitStack) -> None:
        """Find what is wrong with the call, then load the model; ``stack`` holds the locks."""
        import numpy as np

        from ..core.evidence import Pairs
        from ..core.unknown import BINS
        from ..edge.classify.classify import Learning, find_pictures
        from ..edge.classify.evidence import Course, Tally, read_labels
        from ..encoders import check_encoder_spec, read_descriptions, read_templates, zero_shot
        from ..errors import refuse

        self.chosen, self.files = chosen, find_pictures(chosen.images)
        names = read_classnames(chosen.classnames)
        templates = None if chosen.templates is None else read_templates(chosen.templates)
        sentences = None if chosen.descriptions is None else read_descriptions(chosen.descriptions)
        options.load_plugins(chosen.plugins)
        memory, self.table = self._lock_files(names, stack)
        check_encoder_spec(chosen.encoder)
        self.labels = read_labels(chosen.labels, names) if chosen.labels is not None else {}
        self.model = options.open_encoder(chosen.encoder, chosen.device, chosen.compute)
        self.bias: float | None = getattr(self.model, "bias", None)
        if chosen.sigmoid and self.bias is None:
            raise refuse("--sigmoid", f"{self.model.name}, which has no bias", "a model trained with one, as SigLIP is")
        self.task = zero_shot(self.model, names, templates, chosen.batch, descriptions=sentences)
        self.method = chosen.create_method(self.task)
        self.learning: Learning | None = None
        if memory is not None:
            sync = self.table.sync if self.table else lambda: None
            self.learning = Learning(memory, self.method, self.task, self.files, chosen.save_every, sync)
            if start := self.learning.start:
                problem(f"going on after {start} of {len(self.files)} images, which {memory.name} covers")
        self.tally, self.course, self.width = Tally(), Course(), answer_text.label_width(names)
        self.labelled: list[Answer] = []  # answers whose true label is known
        self.judged: set[str] = set()  # their files: one that is named twice is judged once
        self.pairs, self.falls_back = Pairs(), False
        self.mcm, self.threshold = np.zeros(BINS, np.int64), 0.0
        self.unlike = 0

    def _lock_files(self, names: list[str], stack: ExitStack) -> tuple[Path | None, AnswerFile | None]:
        """Return the files of memory and rows; they are locked before they are read, or others' work would be lost.

        What the method cannot do is found out with a classifier of the same classes in two dimensions.
        """
        import numpy as np

        from ..core.zero_shot import ZeroShot
        from ..edge.classify.answers import ANSWER_COLUMNS, FLAG_COLUMNS, AnswerFile, locked_answers
        from ..edge.classify.classify import check_author, covered_files, locked_memory, read_memory

        chosen, files, start = self.chosen, self.files, 0
        method = chosen.create_method(ZeroShot(np.tile([1.0, 0.0], (len(names), 1)), names))
        if chosen.out is not None:
            target = os.path.realpath(chosen.out)
            if chosen.memory is not None and target == os.path.realpath(chosen.memory):
                raise click.UsageError("--out and --memory are the same file")
            if any(file.name == chosen.out.name and os.path.realpath(file) == target for file in files):
                raise click.UsageError(f"--out {chosen.out} is one of the images")
        memory = None if chosen.memory is None else stack.enter_context(locked_memory(chosen.memory))
        table = None if chosen.out is None else stack.enter_context(locked_answers(chosen.out))
        if memory is not None and memory.exists():
            notes = read_memory(memory).metadata
            check_author(memory, notes, method)
            start = covered_files(notes, files)
        columns = (*ANSWER_COLUMNS, *FLAG_COLUMNS) if chosen.flag else ANSWER_COLUMNS
        return memory, None if table is None else AnswerFile(table, files, start, columns)

    def run(self) -> int:
        """Answer every image, and return how many are unreadable."""
        from ..edge.classify.classify import embed_files

        if self.table:
            self.table.open()
            if self.table.missing:
                problem(f"{self.table.path} is new: the rows of the first {self.table.missing} images are not in it")
        if not self.chosen.as_json:
            line(answer_text.header_text(self.width))
        start = self.learning.start if self.learning else 0
        try:
            for picture in embed_files(self.model, self.files, start, self.chosen.max_pixels, self.chosen.batch):
                with postpone_stop():  # a signal waits until the image is learnt, printed and counted
                    self._answer(picture)
            with postpone_stop():
                self._finish()
        except Stopped as stopped:
            with suppress(OSError):  # a full disk: the last save counts
                stopped.hint = self._save()
            raise
        except BaseException:  # a pipe that nobody reads any more, a full disk, a failing encoder
            self._save()
            raise
        return self.tally.counts().unreadable

    def _save(self) -> str:
        """Save what was learnt until something ended the work; return how to go on, empty where nothing is left."""
        total, learning = len(self.files), self.learning
        if learning is None:
            rows = f"{self.chosen.out} has the rows of {self.tally.counts().pictures} of {total} images"
            return f"{rows}: without --memory, the same command starts over" if self.table else ""
        file = learning.file.name
        if learning.finished:
            return f"all {total} images are done, and {file} has learnt from them"
        if learning.done > learning.start:
            learning.save()
        return f"{learning.done} of {total} images are done and saved in {file}: run the same command again to go on"

    def _answer(self, picture: EmbeddedPicture) -> None:
        from ..core.unknown import bin_of, threshold_of
        from ..edge.classify.answers import answer_fields, json_line
        from ..edge.classify.classify import answer_picture, sigmoid_probabilities
        from ..edge.classify.evidence import stretch_of

        answer = answer_picture(
            picture,
            self.task,
            self.method,
            fallback=self.falls_back,
            threshold=self.threshold if self.chosen.flag else None,
            reviewed=bool(self.labels),
        )
        if answer.mcm is not None:
            self.mcm[bin_of(answer.mcm, self.task.classes)] += 1
            self.threshold = threshold_of(self.mcm, self.task.classes, self.chosen.flag)
            self.unlike += answer.unlike
        fits: dict[str, float] = {}
        if self.chosen.sigmoid and self.bias is not None and picture.row is not None:
            fits = sigmoid_probabilities(self.task, picture.row, self.bias)
        self.tally.count(answer)
        if answer.problem is None:
            self.course.add(stretch_of(answer))
        if self.labels and (name := os.path.abspath(answer.file)) in self.labels:  # noqa: PTH100
            self.labelled.append(replace(answer, file=name))
            self._teach(picture, answer, self.labels[name], again=name in self.judged)
            self.judged.add(name)
        try:
            if self.table:
                self.table.add(answer)
            if self.chosen.as_json:
                line(json_line(answer_fields(answer) | ({"sigmoid": fits} if fits else {})))
            elif answer.problem is not None:
                problem(answer.problem)
            else:
                line(answer_text.answer_text(answer, self.width))
                if fits:
                    line(answer_text.fits_text(fits))
        finally:  # it has been learnt, whether or not anybody reads the line
            if self.learning:
                self.learning.count()

    def _teach(self, picture: EmbeddedPicture, answer: Answer, label: str, again: bool) -> None:
        """Learn a label, which has judged the answer before."""
        import numpy as np

        from ..core.evidence import Pairs
        from ..core.types import Teachable, can_be_taught
        from ..edge.classify.evidence import pair_of

        self.pairs += Pairs() if again else pair_of(answer, label)
        self.falls_back = self.chosen.fallback and self.pairs.verdict == "hurts"
        if picture.row is not None and can_be_taught(self.method):
            assert isinstance(self.method, Teachable)
            soft = None if answer.soft_label is None else np.frombuffer(answer.soft_label, "<f4")
            self.method.correct(picture.row, self.task.classnames.index(label), soft)

    def _finish(self) -> None:
        """Save everything, and say what happened, and whether adapting helped."""
        from ..edge.classify.classify import fill_of
        from ..edge.classify.evidence import collapse_of, compare_answers, help_lines, help_of

        if self.learning:
            self.learning.finish()
        if self.table:
            self.table.close()
        texts = [answer_text.counts_text(self.tally.counts()), *answer_text.course_lines(self.course.stretches())]
        if self.chosen.labels and not self.labelled:
            texts.append(f"accuracy unknown: {self.chosen.labels} names none of these images")
        texts += answer_text.labelled_lines(compare_answers(self.labelled, self.labels))
        texts.append(answer_text.collapse_line(collapse_of(self.tally.zero_shot, self.task.classes)))
        counts = self.tally.counts()
        if self.labelled:
            changed = counts.changed / counts.answered if counts.answered else 0.0
            texts += help_lines(help_of(self.pairs, changed), falls_back=self.falls_back)
        if self.chosen.flag:
            texts.append(answer_text.flag_text(self.chosen.flag, self.threshold, self.unlike))
        texts.append(answer_text.memory_text(fill_of(self.method), self.task.classes, str(self.chosen.memory or "")))
        texts.append(f"table: {self.chosen.out}" if self.chosen.out else "")
        for text in filter(None, texts):
            line(text, err=True)
