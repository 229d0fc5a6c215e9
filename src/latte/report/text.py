"""How a number is written, the same in every format."""

from __future__ import annotations


def number(value: float | None) -> str:
    """Return an accuracy with two decimals; a dash where there is none.

    >>> number(70.125), number(None)
    ('70.12', '–')
    """
    return "–" if value is None else f"{value:.2f}"


def signed(value: float | None) -> str:
    """Return a difference with its sign; a true minus, and no sign for what rounds to zero.

    >>> signed(1.5), signed(-1.5), signed(-0.001)
    ('+1.50', '−1.50', '0.00')
    """
    if value is None:
        return "–"
    written = f"{value:+.2f}"
    return "0.00" if float(written) == 0 else written.replace("-", "−")
