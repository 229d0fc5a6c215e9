"""How close two numbers may be before rounding could order them either way.

The engine computes the same quantities as the readable simulator, with other orders of summation. A decision between
two numbers that are closer than the tolerance here is taken again with the readable operation. ``u`` is 2^-24, half of
the distance from 1 to the next float32. ``tests/simulation/test_tolerances.py`` holds every value.
"""

from __future__ import annotations

# Two cosines of float32 prototypes, beside their exact values, which decide. A sum of D products over 8 or more lanes
# rounds by about u per addition in a lane; how many lanes there are depends on the processor. Up to 3.7e-7 was measured
# for the difference of two, with up to 2,048 dimensions and vectors that round badly. The rest is reserve. For the
# same cosines, the readable simulator has more (4e-6, NEAR of core.near_ties): what is close costs it less. Either only
# decides what is computed again exactly, so the choices are the same.
NEAR_SIMILARITY = 1e-6

# Two cosines of float32 prototypes, summed in double precision. The products of the elements are exact there; each of
# the D additions loses at most 2^-53 of a sum that is at most 1: 2.3e-13 for D = 2,048, in both, and as much in the
# sum that is compared with. The rest is reserve.
NEAR_EXACT = 2e-12

# Two zero-shot logits, per unit of the logit scale. Products are summed in float64, which loses nothing here. What is
# left is the division of a row by its length: lengths from two orders of summation differ in the last bit, the
# divided rows by u per element, a cosine by at most 2 u, the difference of two by 4 u = 2.4e-7. The rest is reserve.
NEAR_LOGIT = 2e-6

# Two entropies, relative to their size. The logits of a prototype are known to the scale times a few u, that is to
# 1e-5 at the scale of 100 that CLIP uses. The entropy of a certain prediction is about e^-gap * gap, of which an error
# of the gap is the relative error; a row on the border of what counts as unit length (see core.validate) adds 5e-7 of
# a gap of up to 50.
NEAR_ENTROPY = 5e-5

# The same absolutely: the entropy of a certain prediction is a difference of float64 numbers near 0 to 5.
ENTROPY_NOISE = 1e-13

# An entropy or a probability beside a limit of TDA's negative cache, relative to the limit: twice NEAR_ENTROPY.
NEAR_LIMIT = 1e-4
