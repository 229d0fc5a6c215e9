"""The paper's theory as code: the sphere model, the bounds, and experiments that compare the two.

``bounds`` are the error bounds as printed, corrected and sharp, ``model`` is the sphere model with clients that share,
``study`` what is measured in it, ``figures`` what ``latte paper theory`` writes.
``benchmarks/results/theory.md`` explains it.
"""
