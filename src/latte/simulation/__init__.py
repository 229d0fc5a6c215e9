"""Federations in one process: the schedule, the readable simulator, the engine, and what a run gives.

``simulate`` walks streams with any method and any exchange, one sample at a time: it is the definition. ``engine``
gives the same predictions faster, for the memory methods. ``readable`` and ``engine`` both return an ``outcome``.
"""
