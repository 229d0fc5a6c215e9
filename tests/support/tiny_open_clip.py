"""Small open_clip models of random weights as folders that open_clip reads (local-dir:), one per form of its models.

``clip`` holds its text encoder itself, ``tower`` has it in a tower, ``siglip`` has a bias, a text encoder that looks at
every place, and a tokenizer of transformers whose texts are cleaned first.
"""

from __future__ import annotations

import json
from pathlib import Path

import tiny_models

FORMS = ("clip", "tower", "siglip")
SIDE, DIM, WIDTH = 32, 24, 32
PREPROCESS = {"mean": [0.5] * 3, "std": [0.25] * 3, "interpolation": "bilinear", "resize_mode": "squash"}


def save(folder: Path, form: str = "clip", **changes: object) -> Path:
    """Save a model; ``changes`` go into its text_cfg."""
    import open_clip
    import torch

    folder.mkdir(parents=True, exist_ok=True)
    vision = {"image_size": SIDE, "patch_size": 8, "width": WIDTH, "layers": 2, "head_width": 8}
    text: dict[str, object] = {"width": WIDTH, "heads": 4, "layers": 2, "context_length": 77, "vocab_size": 49408}
    config: dict[str, object] = {"embed_dim": DIM, "vision_cfg": vision, "text_cfg": text}
    if form != "clip":
        config["custom_text"] = True
    if form == "siglip":
        size = tiny_models.write_tokenizer(folder, "<s>", "</s>", 64)
        text |= {"vocab_size": size, "context_length": 64, "no_causal_mask": True, "pool_type": "last"}
        text |= {"hf_tokenizer_name": "beside", "tokenizer_kwargs": {"clean": "canonicalize"}, "proj_bias": True}
        config["init_logit_bias"] = -10
    text |= changes
    about = {"model_cfg": config, "preprocess_cfg": PREPROCESS}
    (folder / "open_clip_config.json").write_text(json.dumps(about), encoding="utf-8")
    torch.manual_seed(0)
    model = open_clip.create_model(f"local-dir:{folder}")
    with torch.no_grad():  # as made, the projection is so small that all texts would be alike
        for name, parameter in model.named_parameters():
            if "token_embedding" in name or "positional_embedding" in name:
                parameter.normal_(std=0.5)
    torch.save(model.state_dict(), folder / "open_clip_pytorch_model.bin")
    return folder
