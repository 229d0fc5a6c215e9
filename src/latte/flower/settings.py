"""The settings of a run: the flat values of ``[tool.flwr.app.config]`` and ``--run-config``, checked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import msgspec

from ..core.validate import choice
from ..data.catalogue import default_clients, find_benchmark, read_benchmark
from ..data.federation import federate
from ..errors import refuse
from ..files.documents import parse_json, structure
from ..simulation.simulator import SYNCS, Schedule

if TYPE_CHECKING:
    from ..data.federation import Federation

FLEET, BENCHMARK = "fleet", "benchmark"
FULL = "full"  # labels of a node count as they are
LONGEST_PARK = 60.0  # for which the node itself keeps a query at most, whatever the server says

FlowerConfig = Mapping[str, Any]  # Flower's UserConfig: text, numbers and truth values
NotNegative = Annotated[float, msgspec.Meta(ge=0.0)]
T = TypeVar("T", str, int, float)


def setting(config: FlowerConfig, name: str, default: T) -> T:
    """Return a value, or its default if it is missing; a value of another type than the default is refused.

    >>> setting({"period": 4}, "period", 1)
    4
    """
    value = config.get(name, default)
    if type(value) is int and isinstance(default, float):
        value = float(value)
    if type(value) is not type(default):
        raise refuse(f"run-config: {name}", repr(value), f"a value such as {default!r}")
    return value


class FleetSettings(msgspec.Struct, frozen=True, rename="kebab"):
    """A fleet whose nodes decide when to sync: its ``task`` file, and the folder ``state`` of the exchange.

    A node holds a query for ``park_seconds`` until its device has something; one that waits is not cancelled when its
    run ends. The run ends after ``seconds``; 0: when it is stopped. A node that left is forgotten after
    ``stale_hours``, a week: its upload helps nobody any more. Of the ``labels`` that nodes give, each counts
    in full, or their weight is "capped", for nodes that may be hostile.
    """

    task: str
    state: str
    park_seconds: Annotated[float, msgspec.Meta(ge=0.0, le=LONGEST_PARK)] = 20.0
    stale_hours: NotNegative = 168.0
    seconds: NotNegative = 0.0
    labels: Literal["capped", "full"] = "capped"

    @classmethod
    def of(cls, config: FlowerConfig) -> FleetSettings:
        """Return the settings of a run."""
        settings = structure({"task": "", "state": "", **config}, cls, "run-config", extra=True)
        places = {"task": "the file that `latte task create` wrote", "state": "a folder for what nodes upload"}
        for name, what in places.items():
            if not Path(getattr(settings, name)).is_absolute():
                raise refuse(f"run-config: {name}", repr(getattr(settings, name)), f"an absolute path: {what}")
        return settings


class BenchmarkSettings(msgspec.Struct, frozen=True, rename="kebab"):
    """A benchmark in step: its clients are shared out over the nodes, and all sync together.

    ``parameters`` is JSON, such as ``{"k_e": 5}``. ``clients_per_domain`` 0: the clients of the file, or the default.
    ``out`` is a file for the labels of every client.
    """

    benchmark: str = "cifar10c-mini"
    method: str = "latte"
    parameters: str = ""
    sync: str = "method"
    period: Annotated[int, msgspec.Meta(ge=1)] = 1
    seed: Annotated[int, msgspec.Meta(ge=0)] = 0
    clients_per_domain: Annotated[int, msgspec.Meta(ge=0)] = 0
    out: str = ""

    def __post_init__(self) -> None:
        choice("sync", self.sync, SYNCS)

    @classmethod
    def of(cls, config: FlowerConfig) -> BenchmarkSettings:
        """Return the settings of a run."""
        return structure(dict(config), cls, "run-config", extra=True)

    def facts(self) -> dict[str, str | int]:
        """Return the values that :meth:`of` reads, for a message to a node."""
        return {name: value for name, value in msgspec.to_builtins(self).items() if name != "out"}

    @property
    def params(self) -> Any:
        """The parameters that differ from the method's defaults."""
        return parse_json(self.parameters, "run-config: parameters") if self.parameters else None

    @property
    def schedule(self) -> Schedule:
        """When clients sync."""
        return Schedule(period=self.period, sync=self.sync)

    def federation(self) -> Federation:
        """Return the clients and their streams, as ``latte run`` has them; fixed clients in the order of the file."""
        entry = find_benchmark(self.benchmark)
        embeddings = read_benchmark(entry)
        clients = self.clients_per_domain or default_clients(embeddings, entry.name)
        return federate(embeddings, clients, self.seed, "file" if clients is None else "shuffled")
