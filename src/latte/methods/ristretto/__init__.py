"""Ristretto: class sums, linear heads, whose sums are pooled, and the server."""
