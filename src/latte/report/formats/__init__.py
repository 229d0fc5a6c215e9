"""Tables as text, Markdown, LaTeX, CSV and JSON."""
