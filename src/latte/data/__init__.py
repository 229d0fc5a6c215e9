"""Streams: benchmark types, embedding files, the bundled benchmark."""
