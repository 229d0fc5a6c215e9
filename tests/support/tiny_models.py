"""A tiny random CLIP and a tiny random SigLIP with a real BPE tokenizer, as transformers folders; and a picture."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

CORPUS = [
    "a photo of a dog.", "a photo of the large cat.", "itap of a giraffe.", "a bad photo of the house.",
    "a origami elephant.", "a guitar in a video game.", "art of the horse.", "a photo of the small person.",
    "polar bear, brown bear and black bear", "the quick brown fox jumps over the lazy dog",
]  # fmt: skip
SIDE = 32


def write_tokenizer(folder: Path, start: str, end: str, context: int) -> int:
    """Train a BPE on a few sentences, in the files CLIPTokenizer reads; return the vocabulary's size."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE(end_of_word_suffix="</w>", unk_token=end))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.BertPreTokenizer(), byte_level()])
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=900, initial_alphabet=alphabet, end_of_word_suffix="</w>", show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    symbols = sorted(alphabet)
    words = [*symbols, *(f"{symbol}</w>" for symbol in symbols), *("".join(pair) for pair in merges)]
    vocabulary = {word: number for number, word in enumerate([*dict.fromkeys(words), start, end])}
    (folder / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    lines = ["#version: 0.2", *(" ".join(pair) for pair in merges)]
    (folder / "merges.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    settings = {"bos_token": start, "eos_token": end, "pad_token": end, "unk_token": end}
    extra = {"tokenizer_class": "CLIPTokenizer", "model_max_length": context}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | extra), encoding="utf-8")
    return len(vocabulary)


def byte_level():
    from tokenizers import pre_tokenizers

    return pre_tokenizers.ByteLevel(add_prefix_space=False)


def save_clip(folder: Path) -> Path:
    """Save a random CLIP: 32-pixel pictures, 2 layers each, 24 dimensions."""
    import torch
    from transformers import CLIPConfig, CLIPModel

    size = write_tokenizer(folder, "<|startoftext|>", "<|endoftext|>", 77)
    sides = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    text = sides | {
        "vocab_size": size,
        "max_position_embeddings": 77,
        "eos_token_id": size - 1,
        "bos_token_id": size - 2,
    }
    vision = sides | {"image_size": SIDE, "patch_size": 8}
    torch.manual_seed(0)
    CLIPModel(CLIPConfig(text_config=text, vision_config=vision, projection_dim=24)).save_pretrained(folder)
    crop = {
        "do_center_crop": True,
        "crop_size": {"height": SIDE, "width": SIDE},
        "size": {"shortest_edge": SIDE},
    }
    write_preprocessor(folder, crop | {"image_processor_type": "CLIPImageProcessor", "resample": 3})
    return folder


def save_siglip(folder: Path) -> Path:
    """Save a random SigLIP: squashed 32-pixel pictures, 2 layers each, 32 dimensions."""
    import torch
    from transformers import SiglipConfig, SiglipModel

    size = write_tokenizer(folder, "<s>", "</s>", 64)
    sides = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    ids = {"eos_token_id": size - 1, "bos_token_id": size - 2, "pad_token_id": size - 1}
    text = sides | ids | {"vocab_size": size, "max_position_embeddings": 64, "projection_size": 32}
    vision = sides | {"image_size": SIDE, "patch_size": 8}
    torch.manual_seed(1)
    SiglipModel(SiglipConfig(text_config=text, vision_config=vision)).save_pretrained(folder)
    squash = {"size": {"height": SIDE, "width": SIDE}, "resample": 2}
    halves = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    write_preprocessor(folder, squash | halves | {"image_processor_type": "SiglipImageProcessor"})
    return folder


def write_preprocessor(folder: Path, config: dict[str, object]) -> None:
    (folder / "preprocessor_config.json").write_text(json.dumps(config), encoding="utf-8")


def make_photo(width: int, height: int):
    """A smooth colourful picture."""
    from PIL import Image

    y, x = np.mgrid[0:height, 0:width]
    waves = [np.sin(x / 7 + y / 11), np.cos(x / 13 - y / 5), np.sin((x + y) / 9)]
    return Image.fromarray(np.stack([127 + 120 * wave for wave in waves], -1).astype(np.uint8))
