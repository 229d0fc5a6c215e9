"""Latte on Flower."""
