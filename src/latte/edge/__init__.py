"""One device: pictures to labels with a memory that adapts, and the file in which the memory outlives the process.

``classify`` turns pictures into answers, ``memory_file`` stores what a method remembers, ``learning`` keeps such a file
up to date while pictures are classified. Nothing here knows of datasets or experiments.
"""
