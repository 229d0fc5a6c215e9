"""A member of a fleet: pictures in, answers out, every one recorded, syncs in between."""
