"""The settings of a run: the flat values of ``[tool.flwr.app.config]`` and ``--run-config``, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ..core.validate import at_least, choice, real
from ..data.catalogue import default_clients, find_benchmark, read_benchmark
from ..data.federation import federate
from ..errors import refuse
from ..files.documents import parse_json
from ..simulation.simulator import SYNCS, Schedule

if TYPE_CHECKING:
    from ..data.federation import Federation

FLEET, BENCHMARK = "fleet", "benchmark"
CAPPED, FULL = "capped", "full"  # how much labels of a node count
PARK_SECONDS = 20.0  # that a node waits for its device: a query that waits is not cancelled when its run ends
STALE_HOURS = 168.0  # a week: after which the upload of a node that left helps nobody any more
LONGEST_PARK = 60.0  # for which the node itself keeps a query at most, whatever the server says

FlowerConfig = Mapping[str, Any]  # Flower's UserConfig: text, numbers and truth values
T = TypeVar("T", str, int, float)


def mode_of(config: FlowerConfig) -> str:
    """Return what a run does: serve a fleet, or walk through a benchmark."""
    mode = setting(config, "mode", FLEET)
    choice("run-config: mode", mode, (FLEET, BENCHMARK))
    return mode


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


@dataclass(frozen=True, slots=True)
class FleetSettings:
    """A fleet whose nodes decide when to sync: its ``task`` file, and the folder ``state`` of the exchange.

    The run ends after ``seconds``; 0: when it is stopped. A node that left is forgotten after ``stale_hours``. Of the
    ``labels`` that nodes give, each counts in full, or their weight is "capped", for nodes that may be hostile.
    """

    task: Path
    state: Path
    park_seconds: float = PARK_SECONDS
    stale_hours: float = STALE_HOURS
    seconds: float = 0.0
    labels: str = CAPPED

    @classmethod
    def of(cls, config: FlowerConfig) -> FleetSettings:
        """Return the settings of a run."""
        task, state = setting(config, "task", ""), setting(config, "state", "")
        for name, value in (("task", task), ("state", state)):
            if not value or not Path(value).is_absolute():
                what = {"task": "the file that `latte task create` wrote", "state": "a folder for what nodes upload"}
                raise refuse(f"run-config: {name}", repr(value), f"an absolute path: {what[name]}")
        labels = setting(config, "labels", CAPPED)
        choice("run-config: labels", labels, (CAPPED, FULL))
        return cls(
            Path(task),
            Path(state),
            real("run-config: park-seconds", setting(config, "park-seconds", PARK_SECONDS), 0.0, LONGEST_PARK),
            real("run-config: stale-hours", setting(config, "stale-hours", STALE_HOURS), 0.0, 1e9),
            real("run-config: seconds", setting(config, "seconds", 0.0), 0.0, 1e9),
            labels,
        )


@dataclass(frozen=True, slots=True)
class BenchmarkSettings:
    """A benchmark in step: its clients are shared out over the nodes, and all sync together.

    ``parameters`` is JSON, such as ``{"k_e": 5}``. ``clients_per_domain`` 0: the clients of the file, or the default.
    ``out`` is a file for the labels of every client.
    """

    benchmark: str = "cifar10c-mini"
    method: str = "latte"
    parameters: str = ""
    sync: str = "method"
    period: int = 1
    seed: int = 0
    clients_per_domain: int = 0
    out: str = ""

    @classmethod
    def of(cls, config: FlowerConfig) -> BenchmarkSettings:
        """Return the settings of a run."""
        values = {name: setting(config, name.replace("_", "-"), value) for name, value in asdict(cls()).items()}
        choice("run-config: sync", values["sync"], SYNCS)
        for name, least in (("period", 1), ("seed", 0), ("clients_per_domain", 0)):
            at_least(f"run-config: {name.replace('_', '-')}", values[name], least)
        return cls(**values)

    def facts(self) -> dict[str, str | int]:
        """Return the values that :meth:`of` reads, for a message to a node."""
        return {name.replace("_", "-"): value for name, value in asdict(self).items() if name != "out"}

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
