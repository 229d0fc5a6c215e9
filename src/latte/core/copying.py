"""Copies of memories."""

from __future__ import annotations

import copy
from typing import Self


class WholeCopy:
    """``copy.copy`` gives what ``copy.deepcopy`` gives: a second memory that goes its own way.

    A shallow copy would share arrays with the original until one of the two replaces some of them.
    """

    def __copy__(self) -> Self:
        return copy.deepcopy(self)
