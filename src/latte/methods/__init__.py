"""One file or room per method, known by name: ``create("latte", zero_shot, preset="cifar10c")``.

Every method is here as a class, and its parameters as a dataclass. ``registry`` says which methods there are and what
each is (:func:`describe`), ``making`` makes them; ``base`` is what a method of your own derives from.
"""

from ..lazy import lazy_names
from .making import create, create_exchange, create_federation, resolve
from .registry import METHODS, MethodInfo, describe, register

TYPE_CHECKING = False  # see latte.lazy
if TYPE_CHECKING:
    from .adapt import Adapt, AdaptParams
    from .base import BaseMethod
    from .bca import Bca, BcaParams
    from .clip import Clip, ClipParams
    from .dmn import Dmn, DmnParams
    from .dota import Dota, DotaFed, DotaParams
    from .ecalp import Ecalp, EcalpParams
    from .latte.client import Latte, LatteParams
    from .mta import Mta, MtaParams
    from .oga import Oga, OgaFed, OgaParams
    from .onzeta import OnZeta, OnZetaParams
    from .pta import Pta, PtaFed, PtaFedParams, PtaParams
    from .ristretto.client import Ristretto, RistrettoParams
    from .tda import Tda, TdaParams
    from .tpt import Tpt, TptParams
    from .views import Vte, VteParams, Zero, ZeroParams

__all__ = [
    "METHODS",
    "Adapt",
    "AdaptParams",
    "BaseMethod",
    "Bca",
    "BcaParams",
    "Clip",
    "ClipParams",
    "Dmn",
    "DmnParams",
    "Dota",
    "DotaFed",
    "DotaParams",
    "Ecalp",
    "EcalpParams",
    "Latte",
    "LatteParams",
    "MethodInfo",
    "Mta",
    "MtaParams",
    "Oga",
    "OgaFed",
    "OgaParams",
    "OnZeta",
    "OnZetaParams",
    "Pta",
    "PtaFed",
    "PtaFedParams",
    "PtaParams",
    "Ristretto",
    "RistrettoParams",
    "Tda",
    "TdaParams",
    "Tpt",
    "TptParams",
    "Vte",
    "VteParams",
    "Zero",
    "ZeroParams",
    "create",
    "create_exchange",
    "create_federation",
    "describe",
    "register",
    "resolve",
]

if not TYPE_CHECKING:  # a type checker reports names that do not exist
    __getattr__, __dir__ = lazy_names(__name__)
