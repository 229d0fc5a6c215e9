"""Datasets: where the images, the embeddings and the class names come from."""
