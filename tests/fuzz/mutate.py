"""Damage to files, drawn from a generator: bytes of any format, the tree of JSON, the directory of a zip file."""

from __future__ import annotations

import copy
import io
import json
import zipfile

import numpy as np

ODD_BYTES = [
    b"",
    b"\0",
    b"\xff",
    b"\xff" * 8,
    b"\xef\xbb\xbf",
    b"[" * 500,
    b'{"a":' * 500,
    b"NaN",
    b"1e999",
    b"9" * 400,
]
ODD_VALUES = [
    None, True, False, 0, -1, 1, 2**31, 2**63 - 1, -(2**63), 2**64, 10**30, 0.5, -0.0, 1e308, -1e308, 5e-324,
    float("nan"), float("inf"), "", "x", "a" * 5000, "\0", "\ud800", "../../x", "/", "\n\x1b[31m", "0", "1e5", "[]", [],
    [[]], [0], [None] * 50, [-1, 2**62], {}, {"": {}}, {"a": [1, {"b": None}]}, "F16", "BF16", "F32", "latte", "NaN",
]  # fmt: skip


def damage_bytes(rng: np.random.Generator, content: bytes) -> bytes:
    """Flip bits, cut, splice, insert, overwrite: one to four times."""
    data = bytearray(content)
    for _ in range(rng.integers(1, 5)):
        kind, at = rng.integers(0, 6), int(rng.integers(0, len(data) + 1))
        end = min(len(data), at + int(rng.integers(1, 40)))
        if kind == 0 and at < len(data):
            data[at] ^= 1 << int(rng.integers(0, 8))
        elif kind == 1:
            del data[at:]
        elif kind == 2:
            del data[at:end]
        elif kind == 3:
            data[at:at] = data[int(rng.integers(0, len(data) + 1)) :][: int(rng.integers(1, 200))]
        elif kind == 4:
            data[at:at] = ODD_BYTES[rng.integers(0, len(ODD_BYTES))]
        else:
            data[at:end] = rng.integers(0, 256, end - at, dtype=np.uint8).tobytes()
    return bytes(data)


def damage_tree(rng: np.random.Generator, tree: object) -> str:
    """Return JSON text of a tree in which one to three places were changed; now and then with a key twice."""
    root = [copy.deepcopy(tree)]
    for _ in range(rng.integers(1, 4)):
        places = list(_places(root))
        parent, key = places[rng.integers(0, len(places))]
        kind = rng.integers(0, 5)
        if kind == 0 and parent is not root:
            del parent[key]
        elif kind == 1 and isinstance(parent, dict):
            parent[f"{key}x"] = parent.pop(key)
        elif kind == 2 and isinstance(parent, list):
            parent.insert(0, copy.deepcopy(parent[key]))
        else:
            parent[key] = copy.deepcopy(ODD_VALUES[rng.integers(0, len(ODD_VALUES))])
    text = json.dumps(root[0])
    return text.replace('"', '"name": 1, "', 1) if rng.integers(0, 20) == 0 else text


def _places(node, limit=4000):
    """Yield (parent, key) of every place in a tree."""
    items = node.items() if isinstance(node, dict) else enumerate(node)
    for key, value in list(items)[:limit]:
        yield node, key
        if isinstance(value, (dict, list)):
            yield from _places(value, limit)


def damage_header(rng: np.random.Generator, content: bytes) -> bytes:
    """Change the JSON header of a safetensors file as a tree, with a length that fits (mostly)."""
    length = int.from_bytes(content[:8], "little")
    header = damage_tree(rng, json.loads(content[8 : 8 + length])).encode("utf-8", "surrogatepass")
    size = len(header) if rng.integers(0, 10) else [0, 1, 2**31, 2**62, 2**64 - 1][rng.integers(0, 5)]
    return size.to_bytes(8, "little") + header + content[8 + length :]


def damage_zip(rng: np.random.Generator, content: bytes) -> bytes:
    """Change what the directory of a zip file says, or a member whose checksum is right all the same."""
    return _directory(rng, content) if rng.integers(0, 2) else _member(rng, content)


def _directory(rng: np.random.Generator, content: bytes) -> bytes:
    """Overwrite fields of the entries in the central directory: versions, flags, method, sizes, offset."""
    data = bytearray(content)
    fields = {4: 2, 6: 2, 8: 2, 10: 2, 16: 4, 20: 4, 24: 4, 28: 2, 30: 2, 32: 2, 42: 4}
    starts = [at for at in range(len(data)) if data.startswith(b"PK\1\2", at)]
    for _ in range(rng.integers(1, 3)):
        at = starts[rng.integers(0, len(starts))]
        offset = int(rng.choice(list(fields)))
        value = int(
            rng.choice([0, 1, 2, 8, 9, 12, 14, 93, 99, 0xFFFF, 0xFFFFFFFF, 1 << 30, int(rng.integers(0, 1 << 16))])
        )
        width = fields[offset]
        data[at + offset : at + offset + width] = (value % (1 << 8 * width)).to_bytes(width, "little")
    return bytes(data)


def _member(rng: np.random.Generator, content: bytes) -> bytes:
    """Write the zip file anew with one member changed, left out, or there twice."""
    target = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as new:
        chosen = rng.integers(0, len(old.namelist()))
        for number, name in enumerate(old.namelist()):
            data = old.read(name)
            if number != chosen:
                new.writestr(name, data)
            elif rng.integers(0, 8):
                new.writestr(name, _npy(rng, data))
    return target.getvalue()


def _npy(rng: np.random.Generator, data: bytes) -> bytes:
    """Change the header of a .npy file as text, or its bytes."""
    text = data[10:].split(b"\n", 1)[0]
    pieces = [
        (b"(", b"(99999999999, "), (b"(", b"(1" + b"0" * 30 + b", "), (b"<", b">"), (b"False", b"True"), (b"'<", b"'|"),
        (b"'descr': '", b"'descr': 'O"), (b"<f2", b"|O"), (b"<f2", b"<f8"), (b"<i2", b"<M8[ns]"), (b"<U", b"<U9999999"),
        (b"{", b"{" * 300), (b"}", b", 'x': 1}"), (b"(", b"(-1, "), (b"(", b"(" * 300), (b"False", b"__import__('os')"),
    ]  # fmt: skip
    if rng.integers(0, 3) == 0:
        return damage_bytes(rng, data)
    before, after = pieces[rng.integers(0, len(pieces))]
    header = text.replace(before, after, 1).strip()
    header += b" " * (-(10 + len(header) + 1) % 64) + b"\n"
    return data[:8] + len(header).to_bytes(2, "little") + header + data[10 + len(text) + 1 :]
