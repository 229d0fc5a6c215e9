"""Load on servers that are killed, or whose database is, and what must hold afterwards. Tests and benchmarks use it."""

from __future__ import annotations

import threading
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from latte import create_exchange
from latte.checks.material import a_zero_shot, an_upload, same_message
from latte.core.types import Prototypes
from latte.edge.clients.calls import Connection, UnreachableError
from latte.server.store.base import open_store
from latte.wire.blocks import decode
from latte.wire.messages import Upload, unpack
from two_servers import BalancedExchange
from waiting import DEADLINE, wait_until

ONCE = Connection(attempts=1, timeout=DEADLINE)


@dataclass
class Sender:
    """A client that uploads without a pause, until an upload is not acknowledged."""

    number: int
    exchange: BalancedExchange
    seed: int = 0
    acknowledged: Prototypes | None = None
    sent: list[Prototypes] = field(default_factory=list)  # since the last acknowledged one
    count: int = 0

    @property
    def name(self) -> str:
        return f"client {self.number}"

    def upload(self) -> None:
        """Upload something new; note whether it was acknowledged."""
        self.seed += 1
        upload = an_upload(1_000_000 * self.number + self.seed)
        self.sent.append(upload)
        self.exchange.push(self.name, upload)
        self.acknowledged, self.sent = upload, []
        self.count += 1

    def try_to_upload(self) -> bool:
        """Upload something new; return whether it was acknowledged."""
        try:
            self.upload()
        except UnreachableError:
            return False
        return True

    def run(self) -> None:
        """Upload until that fails."""
        while self.try_to_upload():
            pass


class CrashLoad:
    """Clients at one or two servers with the store ``place``, and what they have been promised."""

    def __init__(self, servers: tuple[str, ...], place: str | Path, clients: int) -> None:
        self.place, self.servers = place, servers
        self.exchange = BalancedExchange(servers, connection=ONCE)
        self.senders = [Sender(i, self.exchange) for i in range(clients)]
        self.threads: list[threading.Thread] = []

    @property
    def acknowledged(self) -> int:
        """How many uploads were acknowledged."""
        return sum(sender.count for sender in self.senders)

    def start(self) -> None:
        """Let all clients upload."""
        self.threads = [threading.Thread(target=sender.run) for sender in self.senders]
        for thread in self.threads:
            thread.start()

    def join(self) -> None:
        """Wait until none uploads any more."""
        for thread in self.threads:
            thread.join()

    def check_store(self) -> None:
        """What is stored of each client is the last acknowledged upload, or one that was on its way."""
        with closing(open_store(self.place)) as store:
            records = store.read([sender.name for sender in self.senders])
        for sender in self.senders:
            possible = [one for one in (sender.acknowledged, *sender.sent) if one is not None]
            if sender.name not in records:
                assert sender.acknowledged is None, f"{sender.name}: an acknowledged upload is lost"
                continue
            blocks = unpack(records[sender.name].body, Upload).blocks
            stored = decode(blocks, Prototypes, a_zero_shot().fingerprint)
            assert any(same_message(stored, one) for one in possible), f"{sender.name}: the stored upload is another"

    def check_answers(self) -> None:
        """After one more upload of each, all servers answer as an exchange that never crashed."""
        wanted = create_exchange("latte", a_zero_shot(), {"k_e": 3})
        for sender in self.senders:
            wait_until(sender.try_to_upload, "a server that has recovered")
            wanted.push(sender.name, sender.acknowledged)
        for sender in self.senders:
            for _ in self.servers:  # one server, then the other
                assert same_message(self.exchange.pull(sender.name), wanted.pull(sender.name))
