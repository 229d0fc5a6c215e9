"""A page on the device itself that asks about its pictures, one key per class.

The server listens on this machine only, under a path that nobody else knows, and answers only to names of this machine:
neither another page in the same browser nor another user can read a picture or give a label.
"""

from __future__ import annotations

import io
import json
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import Any

from ...core.validate import choice
from ...encoders.pictures import MOST_PIXELS, BadImageError, open_picture
from ...errors import InputError, refuse
from ...files.atomic import is_locked
from ...files.documents import parse_json
from ..classify.evidence import help_lines
from .labels import NONE, Question, add_labels, count_taught, read_questions, remove_labels
from .record import DEVICE_FILE, open_record
from .report import summarise
from .watch import file_source

LONGEST_SIDE = 1280  # pixels of a picture on the page
AHEAD = 20  # questions that are looked up at a time
FRESH_SECONDS = 5.0  # for which they are good, because the device goes on answering
_SHARE = 10  # looking takes at most one part in ten of the time, however many answers there are
_MOST_BODY = 4096  # bytes
_PAGE = {"": ("review.html", "text/html"), "review.css": ("review.css", "text/css")} | {
    "review.js": ("review.js", "text/javascript")
}
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';"
    " img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Review:
    """Questions about the pictures of the device in ``folder``, and what a person answers. Any thread may call it."""

    def __init__(self, folder: Path, classnames: tuple[str, ...], max_pixels: int = MOST_PIXELS) -> None:
        self._folder, self._names, self._max_pixels = folder, classnames, max_pixels
        self._database = open_record(folder)
        self._lock = threading.Lock()
        self._left_out: set[int] = set()  # numbers of pictures that were skipped, or are not there any more
        self._given: list[Question] = []  # what was answered here, for undo
        self._ahead: deque[Question] = deque()
        self._due = self._help_due = 0.0  # when to look again for questions, and at what the labels prove
        self._help: list[str] = []
        self._device = ""

    def state(self) -> dict[str, Any]:
        """Return what the page shows: the next question, and what is known so far."""
        with self._lock:
            questions = self._next(2)
            labelled = self._database.execute("SELECT count(*) FROM labels").fetchone()[0]
            if (start := time.monotonic()) >= self._help_due:
                summary = summarise(self._database, self._folder, len(self._names))
                whole = sum(summary.fleet.pairs) > summary.pairs.differing
                self._help = list(help_lines(summary.help, " of the fleet" if whole else "", summary.falls_back))
                self._device = summary.status.name
                self._help_due = time.monotonic() + _SHARE * (time.monotonic() - start)
            return {
                "device": self._device,
                "running": is_locked(self._folder / f"{DEVICE_FILE}.lock"),
                "classes": self._names,
                "question": _shown(questions[0]) if questions else None,
                "next": questions[1].number if len(questions) > 1 else None,
                "labelled": labelled,
                "learnt": count_taught(self._database),
                "help": self._help,
                "undo": bool(self._given),
            }

    def _next(self, count: int) -> list[Question]:
        start = time.monotonic()
        if not self._ahead or start >= self._due:
            shown = list(islice(self._ahead, count))  # stay what they are: somebody looks at the first
            new = (each for each in read_questions(self._database) if each not in shown and self._is_there(each))
            self._ahead = deque([*shown, *islice(new, AHEAD)])
            took = time.monotonic() - start
            self._due = start + max(FRESH_SECONDS, _SHARE * took)
        return list(islice(self._ahead, count))

    def _is_there(self, question: Question) -> bool:
        """Return whether a picture can be shown: its file is still the one that was answered."""
        if question.number in self._left_out:
            return False
        with suppress(OSError, ValueError):
            if file_source(question.source.name) == question.source:
                return True
        self._left_out.add(question.number)
        return False

    def _take(self, number: int) -> Question:
        """Return a question that is waiting, which then waits no more."""
        for question in self._ahead:
            if question.number == number:
                self._ahead.remove(question)
                return question
        raise refuse("number", str(number), "that of a picture that is being asked about")

    def label(self, number: int, label: str) -> None:
        """Store the label of a picture; :data:`NONE` if it shows none of the classes."""
        with self._lock:
            if label != NONE:
                choice("label", label, self._names)
            question = self._take(number)
            add_labels(self._database, {question.source.name: label}, chosen=True)
            self._given.append(question)

    def skip(self, number: int) -> None:
        """Do not ask about a picture any more, until the page is opened by another call."""
        with self._lock:
            self._left_out.add(self._take(number).number)

    def undo(self) -> None:
        """Take the last label back, and ask again."""
        with self._lock:
            if self._given:
                question = self._given.pop()
                remove_labels(self._database, [question.source.name])
                self._ahead.appendleft(question)

    def picture(self, number: int) -> bytes:
        """Return a picture of a question as a JPEG."""
        with self._lock:
            found = [question for question in self._ahead if question.number == number]
        if not found or not self._is_there(found[0]):
            raise refuse("picture", str(number), "one that is being asked about")
        picture = open_picture(found[0].source.name, self._max_pixels)
        picture.thumbnail((LONGEST_SIDE, LONGEST_SIDE))
        content = io.BytesIO()
        picture.save(content, "JPEG", quality=88)
        return content.getvalue()

    def close(self) -> None:
        """Close the record."""
        with self._lock:
            self._database.close()


def _shown(question: Question) -> dict[str, Any]:
    answers = sorted({question.adapted, question.zero_shot})  # which is whose would sway people
    why = "differ" if question.differs else "unsure"
    name = Path(question.source.name).name.encode(errors="surrogateescape").decode(errors="backslashreplace")
    return {"number": question.number, "name": name, "answers": answers, "why": why, "unlike": question.unlike}


class ReviewServer:
    """The page at :attr:`address`, for browsers on this machine."""

    def __init__(self, folder: Path, classnames: tuple[str, ...], port: int = 0, max_pixels: int = MOST_PIXELS) -> None:
        self.review = Review(folder, classnames, max_pixels)
        secret = f"/{secrets.token_urlsafe(16)}/"
        try:
            self._server = ThreadingHTTPServer(("127.0.0.1", port), _handler(self.review, secret))
        except OSError as error:
            self.review.close()
            raise refuse("--port", f"{port} ({error.strerror})", "a free port: 0 is any") from None
        self._server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._server.server_port}{secret}"

    def serve(self) -> None:
        """Answer browsers until :meth:`close` or an exception."""
        self._server.serve_forever(poll_interval=0.2)

    def close(self) -> None:
        """End it."""
        self._server.server_close()
        self.review.close()


def _handler(review: Review, secret: str) -> type[BaseHTTPRequestHandler]:
    actions: dict[str, Callable[[dict[str, Any]], None]] = {
        "label": lambda body: review.label(body["number"], body["label"]),
        "skip": lambda body: review.skip(body["number"]),
        "undo": lambda body: review.undo(),
    }

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        server_version, sys_version = "latte", ""
        timeout = 30

        def do_GET(self) -> None:
            if (name := self._name()) is None:
                return
            if name in _PAGE:
                file, kind = _PAGE[name]
                content = (files("latte.edge.device") / "page" / file).read_bytes()
                self._answer(200, content, f"{kind}; charset=utf-8")
            elif name == "state":
                self._json(200, review.state())
            elif name.startswith("picture/") and name[8:].isdecimal() and len(name) < 30:
                try:
                    self._answer(200, review.picture(int(name[8:])), "image/jpeg")
                except (InputError, BadImageError, OSError) as error:
                    self._json(404, {"detail": str(error)})
            else:
                self._json(404, {"detail": "there is nothing here"})

        def do_POST(self) -> None:
            if (name := self._name()) is None:
                return None
            length = self.headers.get("Content-Length", "")
            if not length.isdecimal() or int(length) > _MOST_BODY or name not in actions:
                self.close_connection = True
                return self._json(400, {"detail": "not a request of the page"})
            content = self.rfile.read(int(length))
            try:
                if self.headers.get_content_type() != "application/json":
                    raise refuse("Content-Type", self.headers.get_content_type(), "application/json")
                body = parse_json(content.decode("utf-8", "replace"), "body")
                if not isinstance(body, dict):
                    raise refuse("body", type(body).__name__, "an object")
                number, label = body.get("number", 0), body.get("label", NONE)
                if not isinstance(number, int) or not isinstance(label, str):
                    raise refuse("body", "other values", "a number and a label")
                actions[name]({"number": number, "label": label})
            except (InputError, OSError) as error:
                return self._json(400, {"detail": str(error)})
            return self._json(200, review.state())

        def _name(self) -> str | None:
            """Return what is asked for below the secret path; answer 403 or 404 and return None to anybody else."""
            host = self.headers.get("Host", "").rsplit(":", 1)[0]
            if host not in ("127.0.0.1", "localhost"):  # a name that leads here by a trick (DNS rebinding)
                self._json(403, {"detail": "the page is for browsers on this machine"})
                return None
            if not secrets.compare_digest(self.path[: len(secret)].encode(), secret.encode()):
                self._json(404, {"detail": "there is nothing here: use the whole address that was printed"})
                return None
            return self.path[len(secret) :]

        def _json(self, status: int, document: Any) -> None:
            self._answer(status, json.dumps(document).encode(), "application/json")

        def _answer(self, status: int, content: bytes, kind: str) -> None:
            self.send_response(status)
            for name, value in {**_HEADERS, "Content-Type": kind, "Content-Length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            """Say nothing: the terminal has the address and nothing else."""

    return Handler
