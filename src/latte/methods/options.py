"""The keywords of every method, for type checkers and editors: parameters by name, as in ``Latte(zero_shot, alpha=2)``.

The parameters themselves, with defaults and meaning, are the dataclasses ``LatteParams`` and so on. A test holds the
two together, and the overloads of ``create`` to the registered names.
"""

from __future__ import annotations

from typing import TypedDict


class Options(TypedDict, total=False):
    """What every method takes: named parameters to begin with, and whether rows are to be made unit rows."""

    preset: str | None
    normalise: bool


class AdaptOptions(Options, total=False):
    """Those of :class:`latte.methods.adapt.AdaptParams`."""

    k: int
    alpha: float
    s: float
    similarity: str
    views: str


class BcaOptions(Options, total=False):
    """Those of :class:`latte.methods.bca.BcaParams`."""

    centre_images: float
    prior_images: float
    centre_least: float
    prior_least: float
    views: str


class DmnOptions(Options, total=False):
    """Those of :class:`latte.methods.dmn.DmnParams`."""

    k: int
    beta: float
    weight: float
    views: str
    near_copy: float


class DotaOptions(Options, total=False):
    """Those of :class:`latte.methods.dota.DotaParams`."""

    epsilon: float
    sigma: float
    eta: float
    rho: float
    mu_init: str
    views: str


class EcalpOptions(Options, total=False):
    """Those of :class:`latte.methods.ecalp.EcalpParams`."""

    k: int
    k_text: int
    gamma: int
    window: int


class LatteOptions(Options, total=False):
    """Those of :class:`latte.methods.latte.client.LatteParams`."""

    variant: str
    k_l: int
    k_e: int
    alpha: float
    beta: float
    gamma: float
    gamma_prototype: float | None
    prototype: str
    memory: str
    empty_query: str | None
    entropy: str
    replace: str
    near_copy: float


class MtaOptions(Options, total=False):
    """Those of :class:`latte.methods.mta.MtaParams`."""

    lambda_y: float
    lambda_q: float


class OgaOptions(Options, total=False):
    """Those of :class:`latte.methods.oga.OgaParams`."""

    k: int
    tau: float
    mean: str


class OnZetaOptions(Options, total=False):
    """Those of :class:`latte.methods.onzeta.OnZetaParams`."""

    beta: float
    alpha: float
    rate_labels: float
    rate_proxies: float
    temperature: float
    horizon: int


class PtaOptions(Options, total=False):
    """Those of :class:`latte.methods.pta.PtaParams`."""

    alpha: float
    tau: float
    floor: float
    gate: bool
    kappa: float
    views: str


class PtaFedOptions(PtaOptions, total=False):
    """Those of :class:`latte.methods.pta.PtaFedParams`."""

    weights: str
    cap: float


class RistrettoOptions(Options, total=False):
    """Those of :class:`latte.methods.ristretto.heads.RistrettoParams`."""

    kappa: float
    rho: float
    eta: float
    nu: float
    routing: str
    near_copy: float
    count_cap: float | None
    trust: str
    approximation: str


class TdaOptions(Options, total=False):
    """Those of :class:`latte.methods.tda.TdaParams`."""

    k: int
    alpha: float
    beta: float
    k_negative: int
    alpha_negative: float
    beta_negative: float
    entropy_above: float
    entropy_below: float
    probability_above: float
    probability_below: float
    views: str
    near_copy: float


class TptOptions(Options, total=False):
    """Those of :class:`latte.methods.tpt.TptParams`."""

    lr: float
    weight_decay: float
    steps: int
    share: float


class VteOptions(Options, total=False):
    """Those of :class:`latte.methods.views.VteParams`."""

    share: float


class ZeroOptions(Options, total=False):
    """Those of :class:`latte.methods.views.ZeroParams`."""

    gamma: float
    epsilon: str
