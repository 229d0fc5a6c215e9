"""Arrays with their number of axes: what a kernel takes is written in these types, and compiled for exactly them.

All are contiguous. One that a kernel must not write to is read-only, whatever the federation has.
"""

from __future__ import annotations

from typing import Annotated, Final

from ...core.types import Integers, Mask, Reals, Vectors

READ_ONLY: Final = "read-only"

Integers1 = Annotated[Integers, 1]
Integers2 = Annotated[Integers, 2]
Integers3 = Annotated[Integers, 3]
Reals1 = Annotated[Reals, 1]
Reals2 = Annotated[Reals, 2]
Reals3 = Annotated[Reals, 3]
Vectors1 = Annotated[Vectors, 1]
Vectors2 = Annotated[Vectors, 2]
Vectors3 = Annotated[Vectors, 3]
Vectors4 = Annotated[Vectors, 4]
Mask1 = Annotated[Mask, 1]
Mask2 = Annotated[Mask, 2]
FixedReals2 = Annotated[Reals, 2, READ_ONLY]
FixedVectors2 = Annotated[Vectors, 2, READ_ONLY]
