"""Labels that people give to the pictures of a device: what they say of its answers, what is learnt from them, and
which pictures are worth asking about.

A label is a row of the record, which any process may write; the device that runs reads it and learns. What it has
learnt is written with its memory, in one transaction: a crash neither loses nor doubles a label. A picture is read
again to be learnt from, so nothing is stored of pictures that nobody labels.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from ...core.evidence import Pairs
from ..classify.evidence import Labelled
from .record import Source, writing

NONE = ""  # the label of a picture that shows none of the classes

# The answer that a label judges: the last one before the label was given, or the first one if that came later.
_JUDGED = """SELECT l.source, l.label AS truth, p.number, p.modified, p.size, p.zero_shot,
        coalesce(s.chosen, 0) AS chosen, coalesce(x.adapted, p.label) AS adapted, s.taught, s.row, x.soft_label,
        max(CASE WHEN s.source IS NOT NULL AND s.number IS NULL THEN -p.number ELSE p.number END)
    FROM labels l JOIN pictures p ON p.source = l.source
        LEFT JOIN lessons s ON s.source = l.source LEFT JOIN extras x ON x.number = p.number
    WHERE p.problem IS NULL AND (s.number IS NULL OR p.number <= s.number) GROUP BY l.source"""


def has_labels(database: sqlite3.Connection) -> bool:
    """Return whether anybody has labelled anything, or taken back a label that was learnt."""
    labelled = "SELECT EXISTS (SELECT 1 FROM labels) OR EXISTS (SELECT 1 FROM lessons)"
    return bool(database.execute(labelled).fetchone()[0])


def compare_labels(database: sqlite3.Connection) -> Labelled:
    """Return how the answers compare with the labels of pictures that nobody chose to ask about.

    Pictures of which a page asked because of their answers would give an accuracy of these pictures only. Those that
    show none of the classes do not count.
    """
    if not has_labels(database):  # as on most devices, at every sync
        return Labelled()
    statement = f"""SELECT count(*), coalesce(sum(right), 0), coalesce(sum(plain), 0),
        coalesce(sum(right AND NOT plain), 0), coalesce(sum(plain AND NOT right), 0)
        FROM (SELECT adapted = truth AS right, zero_shot = truth AS plain FROM ({_JUDGED})
              WHERE truth != '' AND NOT chosen)"""
    return Labelled(*database.execute(statement).fetchone())


def read_pairs(database: sqlite3.Connection) -> Pairs:
    """Return what all labels say of the pictures on which the two answers differ."""
    if not has_labels(database):
        return Pairs()
    statement = f"""SELECT coalesce(sum(adapted = truth), 0), coalesce(sum(zero_shot = truth), 0),
        coalesce(sum(adapted != truth AND zero_shot != truth), 0) FROM ({_JUDGED}) WHERE adapted != zero_shot"""
    return Pairs(*database.execute(statement).fetchone())


NOTHING = Labelled(), Pairs()  # of a record without labels


def read_labelled(database: sqlite3.Connection) -> tuple[Labelled, Pairs]:
    """Return both."""
    return compare_labels(database), read_pairs(database)


def read_known(database: sqlite3.Connection, name: str) -> tuple[bool, bool]:
    """Return whether a picture was answered, and whether its embedding is there because its label was learnt."""
    found = """SELECT EXISTS (SELECT 1 FROM pictures WHERE source = :name),
        EXISTS (SELECT 1 FROM lessons WHERE source = :name AND row IS NOT NULL)"""
    answered, embedded = database.execute(found, {"name": os.fsencode(name)}).fetchone()
    return bool(answered), bool(embedded)


def add_labels(database: sqlite3.Connection, labels: Mapping[str, str], chosen: bool = False) -> int:
    """Store the true labels of pictures, by their names; return how many of these pictures have been classified.

    ``chosen``: somebody asked for these labels because of the answers, so no accuracy may be made of them. The label
    :data:`NONE` says that a picture shows none of the classes.
    """
    rows = [(os.fsencode(name), label) for name, label in labels.items()]
    with writing(database):
        database.executemany("INSERT OR REPLACE INTO labels VALUES (?, ?)", rows)
        found = """SELECT source, max(CASE WHEN problem IS NULL THEN number END) FROM pictures
            WHERE source IN (SELECT source FROM labels) GROUP BY source"""
        numbers = dict(database.execute(found))
        database.executemany(  # a label that is corrected still judges the answer before the first one
            "INSERT OR IGNORE INTO lessons (source, number, chosen) VALUES (?, ?, ?)",
            [(source, numbers.get(source), chosen) for source, _ in rows],
        )
    return sum(source in numbers for source, _ in rows)


def remove_labels(database: sqlite3.Connection, names: Collection[str]) -> int:
    """Take labels back; return how many there were. What a device has learnt from them it takes back, too."""
    rows = [(os.fsencode(name),) for name in names]
    with writing(database):
        count = sum(database.execute("DELETE FROM labels WHERE source = ?", row).rowcount for row in rows)
        database.executemany("DELETE FROM lessons WHERE source = ? AND taught IS NULL", rows)
    return count


@dataclass(frozen=True, slots=True)
class Lesson:
    """A label that is not learnt yet, or learnt and taken back: then ``label`` is None.

    ``taught`` is the label that has been learnt of this picture, None if there is none, and ``row`` its embedding.
    ``soft_label`` is what the method had learnt from the picture without a label, as far as that is known.
    """

    source: Source
    number: int
    label: str | None
    taught: str | None
    row: bytes | None
    soft_label: bytes | None = None


def due_lessons(database: sqlite3.Connection) -> list[Lesson]:
    """Return what is to be learnt and unlearnt, by the order of the pictures."""
    if not has_labels(database):
        return []
    statement = f"""SELECT source, modified, size, number, truth, taught, row, soft_label FROM ({_JUDGED})
        WHERE truth IS NOT taught ORDER BY number"""
    lessons = []
    for name, modified, size, *rest in database.execute(statement):
        lessons.append(Lesson(Source(os.fsdecode(name), modified, size), *rest))
    gone = """SELECT source, coalesce(number, 0), taught, row FROM lessons
        WHERE source NOT IN (SELECT source FROM labels)"""
    for name, number, taught, row in database.execute(gone):
        lessons.append(Lesson(Source(os.fsdecode(name)), number, None, taught, row))
    return lessons


def count_taught(database: sqlite3.Connection) -> int:
    """Return how many labels the device has learnt; "none of these" is nothing to learn."""
    return int(database.execute("SELECT count(*) FROM lessons WHERE taught != ''").fetchone()[0])


def count_due(database: sqlite3.Connection) -> int:
    """Return how many labels of classified pictures are not learnt yet."""
    if not has_labels(database):
        return 0
    return int(database.execute(f"SELECT count(*) FROM ({_JUDGED}) WHERE truth IS NOT taught").fetchone()[0])


@dataclass(frozen=True, slots=True)
class Question:
    """A picture that is worth asking about: its number, its origin, and the two answers."""

    number: int
    source: Source
    adapted: str
    zero_shot: str
    unlike: bool = False

    @property
    def differs(self) -> bool:
        """Whether a label says which of the two is better."""
        return self.adapted != self.zero_shot


def read_questions(database: sqlite3.Connection) -> Iterator[Question]:
    """Yield the unlabelled pictures, the most useful first: those whose two answers differ, the latest before earlier.

    Then those with the smallest margin between the two best classes. Where that is not known, it is at least 2p - 1,
    with p the probability of the answer. Near copies are left out: their labels would count one scene many times.
    """
    statement = """SELECT p.number, p.source, p.modified, p.size, coalesce(x.adapted, p.label), p.zero_shot,
            coalesce(x.unlike, 0), coalesce(x.adapted, p.label) != p.zero_shot AS differs
        FROM pictures p LEFT JOIN extras x ON x.number = p.number
        WHERE p.problem IS NULL AND NOT p.near_copy AND p.source NOT IN (SELECT source FROM labels)
        ORDER BY differs DESC, CASE WHEN coalesce(x.adapted, p.label) != p.zero_shot THEN -p.number
            ELSE coalesce(x.margin, 2 * p.probability - 1) END"""
    for number, name, modified, size, adapted, zero_shot, unlike, _ in database.execute(statement):
        yield Question(number, Source(os.fsdecode(name), modified, size), adapted, zero_shot, bool(unlike))


def read_scores(database: sqlite3.Connection) -> list[float]:
    """Return the MCM of all pictures that have one."""
    return [mcm for (mcm,) in database.execute("SELECT mcm FROM extras WHERE mcm IS NOT NULL")]
