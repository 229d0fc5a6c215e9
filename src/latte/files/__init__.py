"""Files: one way to write them, and one checked way to read each format.

============= ================================================================="""

from __future__ import annotations

from ..lazy import lazy_names

TYPE_CHECKING = False  # see latte.lazy
if TYPE_CHECKING:
    from .archives import open_tar
    from .arrays import map_npy, open_npz
    from .atomic import append_line, replacing, write_bytes, write_text, writing
    from .documents import parse_json, parse_toml, read_json, read_toml
    from .locks import lock
    from .reading import open_file, read_bytes, read_lines, read_text
    from .schema import structure
    from .tensors import Tensors, read_safetensors, write_safetensors

_HOMES = {
    ".archives": ("open_tar",),
    ".arrays": ("map_npy", "open_npz"),
    ".atomic": ("append_line", "replacing", "write_bytes", "write_text", "writing"),
    ".documents": ("parse_json", "parse_toml", "read_json", "read_toml"),
    ".locks": ("lock",),
    ".reading": ("open_file", "read_bytes", "read_lines", "read_text"),
    ".schema": ("structure",),
    ".tensors": ("Tensors", "read_safetensors", "write_safetensors"),
}

__all__ = [
    "Tensors",
    "append_line",
    "lock",
    "map_npy",
    "open_file",
    "open_npz",
    "open_tar",
    "parse_json",
    "parse_toml",
    "read_bytes",
    "read_json",
    "read_lines",
    "read_safetensors",
    "read_text",
    "read_toml",
    "replacing",
    "structure",
    "write_bytes",
    "write_safetensors",
    "write_text",
    "writing",
]

if not TYPE_CHECKING:  # a type checker reports names that do not exist
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)
