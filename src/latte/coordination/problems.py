"""What a server refuses, and how it says so: RFC 9457 problem details with codes that do not change."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

CODES: dict[str, tuple[int, str]] = {
    "bad_message": (400, "The body is not a message of this protocol"),
    "unsupported_protocol": (400, "The message is of a version of the protocol that the server does not speak"),
    "bad_request": (400, "The request cannot be understood"),
    "unauthorized": (401, "A valid bearer token is needed"),
    "forbidden": (403, "The token does not allow this"),
    "not_found": (404, "There is nothing here"),
    "unknown_client": (404, "The client has not uploaded anything"),
    "method_not_allowed": (405, "This method is not allowed here"),
    "too_slow": (408, "The request did not arrive in time"),
    "other_task": (409, "The client works on another task"),
    "stale_version": (409, "A later upload of this client is stored"),
    "unknown_base": (409, "The upload leaves out rows of an upload that is not stored"),
    "too_large": (413, "The body is too large"),
    "unsupported_media": (415, "The body has a type or an encoding that is not accepted"),
    "bad_upload": (422, "The upload cannot have come from an honest client"),
    "key_reused": (422, "The key belongs to another request of this client"),
    "too_many_requests": (429, "The client asks too often"),
    "head_too_large": (431, "The request line and the headers are too large"),
    "internal": (500, "The server failed"),
    "busy": (503, "Too many requests are waiting"),
    "stopping": (503, "The server is being stopped"),
    "store_unavailable": (503, "The store does not answer"),
    "too_many_clients": (507, "The federation is full"),
    "store_full": (507, "The disk of the store is full"),
}


LONGEST_DETAIL = 500  # characters of a detail that are sent, logged and remembered: it may quote what was sent


def shorten_detail(detail: str) -> str:
    """Return a detail that has at most LONGEST_DETAIL characters."""
    return detail if len(detail) <= LONGEST_DETAIL else f"{detail[: LONGEST_DETAIL - 1]}…"


@dataclass(eq=False)
class Problem(Exception):  # noqa: N818  it is the document that a client gets
    """A refusal. ``retry_after`` in seconds tells a client when to try again; ``more`` are further members."""

    code: str
    detail: str
    retry_after: float | None = None
    more: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.code}: {self.detail}"

    @property
    def status(self) -> int:
        """The HTTP status."""
        return CODES[self.code][0]

    def document(self) -> dict[str, Any]:
        """Return the problem document."""
        status, title = CODES[self.code]
        return {
            "type": f"urn:latte:problem:{self.code}",
            "title": title,
            "status": status,
            "code": self.code,
            "detail": shorten_detail(self.detail),
            **self.more,
        }
