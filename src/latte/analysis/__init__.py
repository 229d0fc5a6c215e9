"""What is computed about methods and runs, as data: nothing here draws or prints.

``cost``, ``cost_encoder``, ``cost_measure`` and ``cost_table``: what a method costs, in closed form and measured.
``diagnose``, ``diagnose_run`` and ``watch``: the memories of a run, class by class. ``studies`` and ``snapshots``: the
numbers behind the figures. ``stats``: means, paired differences and their intervals. ``speed``: the engine's speed.
"""
