"""What a campaign needs besides its data: packages that only some methods and executors use."""

from __future__ import annotations

from collections.abc import Iterable

from ..core.extras import need
from ..encoders.tuning import check_prompt_tuner
from ..methods import describe
from .plan import Plan
from .runner import Options
from .workers import check_executor


def check_packages(plans: Iterable[Plan], options: Options) -> None:
    """Import what the workers will import; a missing package is named before the first item starts.

    A cluster's workers may have other packages than this machine, so there only the connection to it is checked.
    """
    if options.executor:
        check_executor(options.executor)
        need("distributed", "cluster")
        return
    encoders = {plan.config.text_encoder for plan in plans if _tunes_prompts(plan)}
    for encoder in sorted(filter(None, encoders)):
        check_prompt_tuner(encoder)


def _tunes_prompts(plan: Plan) -> bool:
    return any(describe(method.name).tunes_prompt for method in plan.config.methods)
