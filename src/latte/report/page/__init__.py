"""Reports as a page: sections, charts."""
