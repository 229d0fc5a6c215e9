"""How the loops are compiled. Imported only where numba is installed."""

from __future__ import annotations

import numba

exactly = numba.njit(cache=True, nogil=True)
# sums may be reordered, which lets them use the width of the machine; NaN and infinity keep their meaning
loosely = numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "arcp", "nsz"})
