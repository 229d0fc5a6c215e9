"""Files: one way to write them, and one checked way to read each format.

============= ========================================================================
module        contents
============= ========================================================================
``atomic``    write files that are complete or absent
``reading``   open regular files, read bytes and text
``documents`` read JSON and TOML; ``schema`` turns their values into dataclasses
``tensors``   safetensors
``arrays``    .npy and .npz
``archives``  tar
``checksums`` sha256 of files and of bytes
``locks``     a lock that one process holds at a time
============= ========================================================================

Whatever a file holds, reading it gives its content, or raises an InputError of one line that names the file.
"""

from __future__ import annotations

from ..lazy import lazy_names

TYPE_CHECKING = False  # see latte.lazy
if TYPE_CHECKING:
    from .archives import open_tar
    from .arrays import map_npy, open_npz
    from .atomic import append_line, replacing, write_bytes, write_text, writing
    from .documents import parse_json, parse_toml, read_json, read_toml
    from .locks import is_locked, lock
    from .reading import open_file, read_bytes, read_lines, read_text
    from .schema import structure
    from .tensors import Tensors, read_safetensors, write_safetensors

_HOMES = {
    ".archives": ("open_tar",),
    ".arrays": ("map_npy", "open_npz"),
    ".atomic": ("append_line", "replacing", "write_bytes", "write_text", "writing"),
    ".documents": ("parse_json", "parse_toml", "read_json", "read_toml"),
    ".locks": ("is_locked", "lock"),
    ".reading": ("open_file", "read_bytes", "read_lines", "read_text"),
    ".schema": ("structure",),
    ".tensors": ("Tensors", "read_safetensors", "write_safetensors"),
}

__all__ = [
    "Tensors",
    "append_line",
    "is_locked",
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
