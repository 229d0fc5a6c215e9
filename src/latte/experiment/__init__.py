"""Campaigns: what to run (``config``, ``plan``), where results go (``folder``), running it (``runner``, ``workers``).

``sweep`` runs a plan at every point of a grid, ``tune`` chooses parameters on partitions that no report shows.
"""
