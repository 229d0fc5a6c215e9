"""The JSON of a diagnosis: the name of its format, and the fields of its dataclass."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any, ClassVar, Self

from ..errors import refuse
from ..files.documents import parse_json
from ..files.schema import structure


class DiagnosisFile:
    """What a frozen dataclass needs to be written as a file and read again."""

    __slots__ = ()
    FORMAT: ClassVar[str]

    def to_json(self: Any) -> str:
        """Return everything as JSON."""
        return json.dumps({"format": self.FORMAT, **asdict(self)}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes, name: str = "diagnosis") -> Self:
        """Read what :meth:`to_json` wrote; ``name`` is its origin, for refusals."""
        raw = parse_json(text, name)
        if not isinstance(raw, dict) or raw.pop("format", None) != cls.FORMAT:
            raise refuse(name, "another kind of file", f"{cls.FORMAT}: what latte diagnose wrote")
        return structure(raw, cls, name)
