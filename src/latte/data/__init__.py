"""Streams: benchmark types, embedding files, partitions, the catalogue and the bundled benchmark."""
