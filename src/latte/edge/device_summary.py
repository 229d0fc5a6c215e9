"""A summary of the file of a device: what the device is doing, and whether adapting helped."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from sqlite3 import Connection
from typing import Any

from ..files.locks import is_locked
from .device_file import (
    DEVICE_FILE,
    DeviceStatus,
    compare_labels,
    read_counts,
    read_course,
    read_recent,
    read_status,
)
from .evidence import Labelled, Stretch, accuracies_of
from .tally import SessionCounts


@dataclass(frozen=True, slots=True)
class DeviceSummary:
    """A device in short; ``running`` says whether a process works with it now."""

    running: bool
    status: DeviceStatus
    counts: SessionCounts
    recent: Stretch
    course: list[Stretch]
    labelled: Labelled

    @property
    def well(self) -> bool:
        """Whether the device runs, and neither its pictures nor its syncs have a problem."""
        return self.running and not self.status.problem and not self.status.sync_problem

    def document(self) -> dict[str, Any]:
        """Return it for JSON."""
        counts = self.counts
        return {
            "running": self.running,
            "well": self.well,
            **asdict(self.status),
            "images": counts.answered,
            "unreadable": counts.unreadable,
            "differing": counts.changed,
            "near_copies": counts.near_copies,
            "agreement": self.recent.agreement,
            "entropy": self.recent.entropy,
            "course": [
                {"images": part.images, "agreement": part.agreement, "entropy": part.entropy} for part in self.course
            ],
            "labels": labelled_document(self.labelled),
        }


def labelled_document(labelled: Labelled) -> dict[str, Any]:
    """Return the accuracies with their 95 % intervals, for JSON; without labels, only that there are none."""
    accuracies = accuracies_of(labelled)
    return {"labelled": 0} if accuracies is None else asdict(accuracies)


def summarise(database: Connection, folder: Path) -> DeviceSummary:
    """Return what the file of a device says."""
    return DeviceSummary(
        is_locked(folder / f"{DEVICE_FILE}.lock"),
        read_status(database),
        read_counts(database),
        sum(read_recent(database), Stretch()),
        read_course(database),
        compare_labels(database),
    )
