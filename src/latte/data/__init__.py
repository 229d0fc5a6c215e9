"""Data: datasets of images, corruptions, embedding files, partitions, the bundled benchmark."""
