"""How agreement and entropy of a client went, as its reports say: its whole life in a fixed number of points."""

from __future__ import annotations

from array import array

import msgspec

from ..wire.messages import DeviceReport

MOST_POINTS = 48  # as many as a small chart can show; less than 800 bytes per client
_WIDTH = 3  # numbers of a point


class CoursePoint(msgspec.Struct, frozen=True):
    """Agreement and entropy when a client had classified so many ``images``."""

    images: float
    agreement: float
    entropy: float


class ReportCourse:
    """At most 48 points, each the mean of equally many reports; the last one may still grow.

    When there is no room, neighbours are joined, and a point stands for twice as many reports.

    >>> course = ReportCourse()
    >>> for images in range(1, 101):
    ...     course.add(DeviceReport(images=images, agreement=0.5, entropy=images / 100))
    >>> points = course.points()
    >>> len(points), points[0].images, points[-1].images, points[0].agreement
    (25, 4.0, 100.0, 0.5)
    """

    __slots__ = ("_images", "_in_last", "_length", "_values")

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._values = array("f")  # images, agreement and entropy of each point in turn
        self._length, self._in_last = 1, 0  # reports of a point, and of the last point
        self._images = 0

    def add(self, report: DeviceReport) -> None:
        """Add a report, unless it is of the same images as the last; of fewer images, the client has begun anew.

        A client that adds noise to its uploads says neither agreement nor entropy.
        """
        agreement, entropy = report.agreement, report.entropy
        if isinstance(agreement, msgspec.UnsetType) or isinstance(entropy, msgspec.UnsetType):
            return
        if report.images < self._images:
            self._begin()
        if report.images == self._images:
            return
        self._images = report.images
        if not self._values or self._in_last == self._length:
            self._open_point()
        self._in_last += 1
        values, share = self._values, 1.0 / self._in_last
        values[-3] = report.images
        values[-2] += (agreement - values[-2]) * share
        values[-1] += (entropy - values[-1]) * share

    def _open_point(self) -> None:
        if len(self._values) == _WIDTH * MOST_POINTS:
            self._join_neighbours()
        self._values.extend((0.0, 0.0, 0.0))
        self._in_last = 0

    def _join_neighbours(self) -> None:
        points = self.points()
        self._values = array("f")
        for first, second in zip(points[::2], points[1::2], strict=True):
            agreement, entropy = (first.agreement + second.agreement) / 2, (first.entropy + second.entropy) / 2
            self._values.extend((second.images, agreement, entropy))
        self._length *= 2

    def points(self) -> list[CoursePoint]:
        """Return the points, the oldest first."""
        values = self._values.tolist()
        return [CoursePoint(*values[start : start + _WIDTH]) for start in range(0, len(values), _WIDTH)]
