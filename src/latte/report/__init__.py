"""What is shown to people: tables, charts and pages.

``contents`` says what a report of run folders shows, ``tables`` and ``sweeps`` make its tables and curves, ``formats``
writes them as text, ``page`` as a page. ``published`` has the paper's accuracies.
"""
