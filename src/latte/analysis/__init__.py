"""What runs mean: costs, diagnostics of memories, the data behind the figures, the speed of the engine."""
