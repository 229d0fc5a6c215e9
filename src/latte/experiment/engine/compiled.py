"""How the loops are compiled. Imported only where numba is installed."""

from __future__ import annotations

from typing import Any

import numba

exactly = numba.njit(cache=True, nogil=True)
# Loops that allocate nothing are compiled without reference counts: to count who holds which array, at every call and
# slice, took a fifth of the time.
tightly = numba.njit(cache=True, nogil=True, _nrt=False, forceinline=True)
# A slice that is returned would be counted, too: such functions become part of who calls them.
inlined = numba.njit(cache=True, nogil=True, inline="always")
# sums may be reordered, which lets them use the width of the machine; NaN and infinity keep their meaning
loosely = numba.njit(cache=True, nogil=True, _nrt=False, fastmath={"reassoc", "contract", "arcp", "nsz"})


@tightly
def put(row: Any, out: Any) -> None:
    """Copy a row: assigning to a slice would need reference counts."""
    for d in range(len(out)):
        out[d] = row[d]
