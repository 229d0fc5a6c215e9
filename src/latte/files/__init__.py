"""Files: one way to write them, and one checked way to read each format.

``atomic`` writes; ``reading`` opens regular files and reads text; ``checksums`` are those of files and bytes;
``documents`` reads JSON and TOML, by the ``schema`` of a dataclass; ``tensors`` is safetensors, ``arrays`` is .npy and
.npz, ``archives`` is tar. Whatever is in a file, what comes out is the content or a ValueError of one line that names
the file.
"""
