"""Campaigns: many runs of methods on benchmarks, in folders that can be resumed.

``config`` is what a user states, ``plan`` the same with every default filled in and bound to its data. ``runner``
does the items of plans with the ``workers``; ``item`` runs one of them, ``together`` those that share a replay.
``folder``, ``manifest`` and ``predictions`` are the files of a run folder, ``runs`` reads finished and unfinished
ones back. ``sweep`` runs a plan at every point of a grid, ``tune`` chooses parameters on partitions that no report
shows.
"""
