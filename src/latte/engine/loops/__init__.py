"""What numba compiles, and all that its machine code depends on.

No loop allocates: the caller passes the arrays to write to. Without reference counts the loops run a fifth faster and
compile in half of the time. A count in a loop starts as ``int(np.int64(0))``, because numba takes a plain 0 for a type
of its own and would compile the helpers that get the count once more for it.
"""
