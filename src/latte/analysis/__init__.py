"""What is computed about methods and runs, as data: nothing here draws or prints.

``stats``: means, paired differences and their intervals. ``diagnose``: the memories or heads of a run.
"""
