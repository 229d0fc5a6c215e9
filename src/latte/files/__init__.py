"""Files: one way to write them, and one checked way to read each format.

============= ========================================================================
module        contents
============= ========================================================================
``atomic``    files that are complete or absent, and a lock that one process holds at a time
``documents`` bytes, text, JSON and TOML, and the dataclasses that these become; checksums
``tensors``   safetensors
``arrays``    .npy, .npz and tar
============= ========================================================================

Whatever a file holds, reading it gives its content, or raises an InputError of one line that names the file.
"""
