"""Download one file over HTTP, with resume, retries, mirrors and checksums; the standard library only."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import refuse
from ..files.atomic import publish
from ..files.checksums import checksum
from ..files.locks import lock

READ_BYTES = 1 << 20
TIMEOUT = 30.0
ATTEMPTS_PER_URL = 3  # of one address that keeps cutting the connection

ByteProgress = Callable[[int, int | None], None]  # bytes so far, bytes in all where known


@dataclass(frozen=True, slots=True)
class Sums:
    """The expected size and checksums of a file, as far as they are known."""

    size: int | None = None
    md5: str | None = None
    sha256: str | None = None

    def fault(self, file: Path) -> str | None:
        """Return the first difference between ``file`` and what is expected, None if there is none."""
        if self.size is not None and file.stat().st_size != self.size:
            return f"{file.stat().st_size} bytes instead of {self.size}"
        for kind in ("md5", "sha256"):
            want = getattr(self, kind)
            if want is not None and (got := checksum(file, kind)) != want:
                return f"{kind} {got} instead of {want}"
        return None


class CutError(ConnectionError):
    """The connection ended before the file did."""


def download(urls: Sequence[str], target: Path, sums: Sums, progress: ByteProgress | None = None) -> Path:
    """Download ``target`` from the first of ``urls`` whose file passes ``sums``.

    The bytes received so far stay in ``target``.part; the next attempt, or the next run, continues from there.
    """
    part = target.with_name(target.name + ".part")
    target.parent.mkdir(parents=True, exist_ok=True)
    failures = []
    with lock(target.with_name(target.name + ".lock"), f"download of {target}"):
        for url in urls:
            fault = _from(url, part, sums, progress)
            if fault is None:
                publish(part, target)
                return target
            failures.append(f"{url}: {fault}")
    raise ConnectionError(f"could not download {target.name}: {'; '.join(failures)}")


def _from(url: str, part: Path, sums: Sums, progress: ByteProgress | None) -> str | None:
    """Try one address; return the fault, None on success."""
    fault: str | None = "no answer"
    for _ in range(ATTEMPTS_PER_URL):
        begun = part.exists()
        try:
            _receive(url, part, sums.size, progress)
        except CutError as error:
            fault = str(error)
            continue
        except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
            return str(getattr(error, "reason", error)) or type(error).__name__
        if (fault := sums.fault(part)) is None:
            return None
        part.unlink()  # the bytes are wrong: start from zero
        if not begun:  # otherwise the old part may be the cause: try again from zero
            return fault
    return fault


def _receive(url: str, part: Path, size: int | None, progress: ByteProgress | None) -> None:
    """Append the missing bytes to ``part``; raise CutError if the connection ends too early."""
    have = part.stat().st_size if part.exists() else 0
    if size is not None and have == size:
        return
    if size is not None and have > size:
        have = 0
    with _open(url, have) as answer:
        resumed = have > 0 and answer.status == http.HTTPStatus.PARTIAL_CONTENT
        start = have if resumed else 0
        _check_range(answer, start, resumed)
        total = _total(answer, start)
        with part.open("ab" if resumed else "wb") as file:
            done = _copy(answer, file.write, start, size if size is not None else total, progress)
    if total is not None and done < total:
        raise CutError(f"the connection ended after {done} of {total} bytes")


def _open(url: str, have: int) -> http.client.HTTPResponse:
    if not url.startswith(("http://", "https://")):
        raise refuse("url", url, "http:// or https://")
    headers = {"User-Agent": "latte-tta", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    request = urllib.request.Request(url, headers=headers)
    try:
        answer: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and have:
            return _open(url, 0)
        raise urllib.error.URLError(f"HTTP {error.code} {error.reason}") from None
    return answer


def _check_range(answer: http.client.HTTPResponse, start: int, resumed: bool) -> None:
    sent = answer.headers.get("Content-Range", "")
    if resumed and not sent.startswith(f"bytes {start}-"):
        raise urllib.error.URLError(f"a request for the bytes from {start} on, answered with {sent!r}")


def _total(answer: http.client.HTTPResponse, start: int) -> int | None:
    length = answer.headers.get("Content-Length")
    return None if length is None or not length.isdigit() else start + int(length)


def _copy(
    answer: http.client.HTTPResponse,
    write: Callable[[bytes], int],
    done: int,
    most: int | None,
    progress: ByteProgress | None,
) -> int:
    """Write the answer and return the length of the file so far; refuse more than ``most`` bytes."""
    while True:
        try:
            block = answer.read(READ_BYTES)
        except http.client.IncompleteRead as error:
            block = error.partial
        except (ConnectionError, TimeoutError):
            return done
        if not block:
            return done
        done += len(block)
        if most is not None and done > most:
            raise urllib.error.URLError(f"more than the {most} bytes expected")
        write(block)
        if progress is not None:
            progress(done, most)
