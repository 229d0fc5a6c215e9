"""The contracts as callable checks, for methods and exchanges of your own as much as for ours.

>>> from latte import Latte, check_method
>>> "remembers nothing after bad input" in check_method(Latte)
True

Each check raises an AssertionError that says what the contract wants. ``method_checks()`` and ``exchange_checks()``
return them one by one, so that a test suite can run and name each on its own.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from .exchange import exchange_checks
from .material import MakeExchange, MakeMethod, an_upload, uploads_of
from .method import method_checks

__all__ = ["check_exchange", "check_method", "exchange_checks", "method_checks", "uploads_of"]


def check_method(make: MakeMethod) -> list[str]:
    """Run every check on the methods that ``make(zero_shot)`` returns; return the names of the checks."""
    return _run(method_checks(), make)


def check_exchange(make: MakeExchange, method: MakeMethod | None = None) -> list[str]:
    """Run every check on the exchanges that ``make(zero_shot)`` returns; return the names of the checks.

    ``method`` makes the method whose summaries are uploaded; without it, Latte's prototypes are uploaded.
    """
    return _run(exchange_checks(an_upload if method is None else uploads_of(method)), make)


def _run(checks: dict[str, Callable[[Any], None]], make: Any) -> list[str]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".* reads the first of")  # several views are for methods that use them
        for check in checks.values():
            check(make)
    return list(checks)
