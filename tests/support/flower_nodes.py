"""Nodes of a fleet for tests: each with a device, and the folder in which it meets the app."""

from __future__ import annotations

import logging

from devices import rows
from latte.edge.clients.folder import ExchangeFolder, FolderExchange
from latte.edge.joining import new_member

METHODS = ("latte", "ristretto")


class Node:
    """A node with a device: a method, and the folder in which it meets the app."""

    def __init__(self, number, task, folder, **options):
        self.number, self.folder, self.task = number, ExchangeFolder(folder).make(), task
        self.method = new_member(task)
        self.exchange = FolderExchange(self.folder, task, patience=0.0, **options)

    def see(self, count, seed):
        for row in rows(count, self.task.zero_shot.dim, seed):
            self.method.predict(row[None])
        return self

    def offer(self):
        return self.exchange.offer(self.method.summary())

    def download(self):
        return self.exchange.download_of(self.folder.answer())


def nodes_of(task, tmp_path, count, **options):
    return [Node(100 + i, task, tmp_path / f"node{i}", **options) for i in range(count)]


def steps(fleet, count=3):
    for _ in range(count):
        fleet.step()


def two_that_synced(task, tmp_path, fleet_of, **settings):
    """Return two nodes whose first uploads are stored and answered, and their fleet."""
    nodes = nodes_of(task, tmp_path, 2)
    fleet = fleet_of(task, tmp_path, nodes, **settings)
    for seed, node in enumerate(nodes):
        node.see(4, seed).offer()
    steps(fleet)
    return nodes, fleet


def complaints(caplog, *words):
    """Return the warnings and errors in the log that contain all of ``words``."""
    lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    return [line for line in lines if all(word in line for word in words)]
