"""What is shown to people: tables, charts, pages and figures. matplotlib is imported where it is used.

``tables`` makes a ``result_table`` of results, ``formats`` writes it as text, Markdown, LaTeX or JSON, ``html`` and
``page`` as a page. ``paper`` has the published accuracies; ``reproduce``, ``baselines`` and ``protocol`` make the
paper's tables. ``figures`` draws the paper's figures, ``theory_figures`` and ``theory_files`` those of the theory.
"""
