"""The rules that decide which prototypes a client gets."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import refuse
from .validate import MOST_SLOTS, at_least, choice

EMPTY_QUERIES = ("client", "none", "released")


@dataclass(frozen=True, slots=True)
class Routing:
    """Which prototypes a client gets.

    ``external_slots`` is the paper's k_e; if fewer clients have the class, fewer prototypes come back (B10).
    ``empty_query`` says what a client gets for a class it has not seen (B3):

    - ``client``: donors that have the class, ranked by the mean similarity over the classes both have seen;
    - ``none``: nothing;
    - ``released``: what the released code returns, the first clients in joining order.

    ``drop_first_rank`` excludes the best match instead of the client itself, as the released code does (B4).
    """

    external_slots: int
    empty_query: str = "client"
    drop_first_rank: bool = False

    def __post_init__(self) -> None:
        at_least("k_e", self.external_slots, 0, MOST_SLOTS)
        choice("empty_query", self.empty_query, EMPTY_QUERIES)
        if self.drop_first_rank and self.empty_query == "client":
            raise refuse("empty_query", "'client' with drop_first_rank", "'released' or 'none'")

    @property
    def by_joining(self) -> bool:
        """Whether ties go to the client that joined first, as in the released code, or by a hash of the name."""
        return self.empty_query == "released" or self.drop_first_rank
