"""What is shown to people: tables, figures, pages. matplotlib is imported where it is used."""
