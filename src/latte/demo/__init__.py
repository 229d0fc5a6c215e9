"""What ``latte demo`` shows: one table on bundled data, or a whole fleet on one machine."""
