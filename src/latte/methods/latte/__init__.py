"""Latte: the client, what it reads from, and the global memory that serves many clients.

Read ``client`` first: one image and one sync, from top to bottom. ``readout`` is what a prediction reads, ``server``
what an exchange stores, ``donors`` whose prototypes a client gets.
"""
