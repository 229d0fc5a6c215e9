"""The paper's theory as code: the sphere model, the bounds, and experiments that compare the two.

It needs numpy and the rest of Latte, nothing else. ``latte.theory.study.run_study`` does everything at once;
``docs/theory.md`` explains it.
"""

from .angles import cap_angle, cap_angle_sharp
from .bounds import ErrorBound, Setting, multi_client, single_client, slab_width
from .model import Classifier, Client, Domain, World, nearest_label
from .sharing import Sharing, merge
from .sphere import cap_share, share_beyond, share_bounds

__all__ = [
    "Classifier",
    "Client",
    "Domain",
    "ErrorBound",
    "Setting",
    "Sharing",
    "World",
    "cap_angle",
    "cap_angle_sharp",
    "cap_share",
    "merge",
    "multi_client",
    "nearest_label",
    "share_beyond",
    "share_bounds",
    "single_client",
    "slab_width",
]
