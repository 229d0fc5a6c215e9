"""The paper's theory as code: the sphere model, the bounds, and experiments that compare the two.

=========== ==================================================================================
module      contents
=========== ==================================================================================
``model``   the sphere model: domains, the initial classifier, clients, the 1-NN readout
``sharing`` which clients contribute what, and the merge
``sphere``  volumes of caps of the unit ball
``angles``  the cap angle θ(N, k, d, δ)
``bounds``  the error bounds, as printed, corrected and sharp
``vacuous`` the number of samples from which a bound says something
``rate``    measured: how fast the memory converges
``errors``  measured: the error against samples and clients
``planes``  the lemma ε_asym ≤ ε_pre
``limit``   measured: the real Latte against 1-NN
``study``   all of it: ``run_study()``
=========== ==================================================================================

It needs numpy and the rest of Latte, nothing else. ``docs/theory.md`` explains it.
"""

from .angles import cap_angle, cap_angle_sharp
from .bounds import ErrorBound, Setting, multi_client, single_client, slab_width
from .model import Classifier, Domain, SphereClient, World, nearest_label
from .sharing import Sharing, merge
from .sphere import cap_share, share_beyond, share_bounds
from .study import Study, StudyPlan, run_study

__all__ = [
    "Classifier",
    "Domain",
    "ErrorBound",
    "Setting",
    "Sharing",
    "SphereClient",
    "Study",
    "StudyPlan",
    "World",
    "cap_angle",
    "cap_angle_sharp",
    "cap_share",
    "merge",
    "multi_client",
    "nearest_label",
    "run_study",
    "share_beyond",
    "share_bounds",
    "single_client",
    "slab_width",
]
