"""What a copy of a memory is."""

from __future__ import annotations

import copy
from typing import Self


class WholeCopy:
    """``copy.copy`` gives what ``copy.deepcopy`` gives: a second memory that goes its own way.

    A shallow copy would share some of the arrays until the first of the two replaces one, and then be half of each.
    """

    def __copy__(self) -> Self:
        return copy.deepcopy(self)
