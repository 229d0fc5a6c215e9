"""Experiments: the readable simulator, schedules and records."""
