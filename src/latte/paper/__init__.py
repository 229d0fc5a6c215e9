"""What exists for the paper alone: its tables, studies, figures, costs and theory."""
