"""What Schemathesis cannot know: how messages look. It loads this file itself."""

import msgspec
import schemathesis
from hypothesis import strategies as st

from latte.checks.material import a_zero_shot, an_upload
from latte.edge.joining import make_task
from latte.wire.blocks import encode
from latte.wire.messages import MEDIA_TYPE

TASK = make_task(a_zero_shot(), "latte", {"k_e": 3})
BLOCKS = [
    [block.name, block.dtype, list(block.shape), block.coding, block.data, block.source]
    for block in encode(an_upload(1), "fp32", TASK.zero_shot.dim)
]
ANYTHING = st.recursive(
    st.one_of(
        *(st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats()),
        *(st.text(max_size=9), st.binary(max_size=9)),
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
FIELDS = {
    "task": st.just(TASK.fingerprint) | ANYTHING,
    "client": st.sampled_from(["a", "", "x" * 2000]) | ANYTHING,
    "version": st.integers(0, 2**63) | ANYTHING,
    "base": st.integers(0, 3) | ANYTHING,
    "key": st.binary(max_size=70) | ANYTHING,
    "upload": st.just(BLOCKS) | st.lists(st.sampled_from(BLOCKS), max_size=3) | ANYTHING,
    "precision": st.sampled_from(["fp32", "int8", "int4", "fp64"]) | ANYTHING,
    "have": ANYTHING,
    "report": ANYTHING,
    "protocol": st.integers(0, 2) | ANYTHING,
}
MESSAGES = st.fixed_dictionaries(
    {name: FIELDS[name] for name in ("task", "client")},
    optional={name: value for name, value in FIELDS.items() if name not in ("task", "client")},
).map(msgspec.msgpack.encode)

schemathesis.openapi.media_type(MEDIA_TYPE, MESSAGES | st.binary(max_size=200))


@schemathesis.serializer(MEDIA_TYPE)
def as_bytes(context, value):
    """Return a body as it is."""
    return value if isinstance(value, bytes) else str(value).encode(errors="surrogateescape")
