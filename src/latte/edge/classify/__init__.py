"""One machine: from pictures to answers, with a memory that adapts and is kept in a file."""
