"""The work of a server on a batch of requests: check, store, exchange, answer."""
