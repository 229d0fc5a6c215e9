"""The dashboard: what an operator sees of a fleet; ``page`` has the files of the page."""
