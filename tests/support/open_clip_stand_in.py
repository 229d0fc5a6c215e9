"""A stand-in for open_clip where that package cannot be imported: the same calls, and models with its text encoder.

The layers, the mask, the pooling and the projection are those of open_clip's ``encode_text``; ``LAYOUTS`` are the three
forms that its versions and models have. Only the image encoder is a toy.
"""

import re
import zlib

import pytest

torch = pytest.importorskip("torch")
nn = torch.nn

WIDTH, HEADS, LAYERS, DIM, CONTEXT, VOCABULARY = 16, 2, 2, 12, 14, 500
START, END = VOCABULARY - 2, VOCABULARY - 1  # the end is the highest token, as in CLIP
LAYOUTS = ("sequence first", "batch first", "text tower")  # open_clip 2, open_clip 3, CustomTextCLIP
QUICK = ("openai",)  # weights that were trained with QuickGELU
PREPROCESS = {"size": (32, 32), "mode": "RGB", "mean": (0.5,) * 3, "std": (0.25,) * 3}
PREPROCESS |= {"interpolation": "bicubic", "resize_mode": "shortest", "fill_color": 0}


class QuickGELU(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(1.702 * x)


class Block(nn.Module):
    def __init__(self, batch_first, activation):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attn = nn.MultiheadAttention(WIDTH, HEADS, batch_first=batch_first)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), activation, nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x, mask):
        y = self.ln_1(x)
        x = x + self.attn(y, y, y, need_weights=False, attn_mask=mask)[0]
        return x + self.mlp(self.ln_2(x))


class Text(nn.Module):
    """Token and positional embedding, causal transformer, final norm, the end token's place, projection."""

    def __init__(self, batch_first, quick_gelu, linear=False):
        super().__init__()
        self.batch_first = batch_first
        self.token_embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.positional_embedding = nn.Parameter(torch.randn(CONTEXT, WIDTH) * 0.3)
        activation = QuickGELU() if quick_gelu else nn.GELU()
        self.blocks = nn.ModuleList([Block(batch_first, activation) for _ in range(LAYERS)])
        self.ln_final = nn.LayerNorm(WIDTH)
        self.text_projection = nn.Linear(WIDTH, DIM) if linear else nn.Parameter(torch.randn(WIDTH, DIM))
        mask = torch.full((CONTEXT, CONTEXT), float("-inf")).triu(1)
        self.register_buffer("attn_mask", mask, persistent=False)

    def forward(self, text):
        x = self.token_embedding(text) + self.positional_embedding
        x = x if self.batch_first else x.permute(1, 0, 2)
        for block in self.blocks:
            x = block(x, self.attn_mask)
        x = x if self.batch_first else x.permute(1, 0, 2)
        x = self.ln_final(x)[torch.arange(len(text)), text.argmax(dim=-1)]
        linear = isinstance(self.text_projection, nn.Linear)
        return self.text_projection(x) if linear else x @ self.text_projection


class Visual(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, DIM, 8, 8)
        self.preprocess_cfg = PREPROCESS

    def forward(self, image):
        return self.conv(image).mean(dim=(2, 3))


class CLIP(Text):
    """The text encoder's parts are the model's own."""

    def __init__(self, batch_first, quick_gelu):
        super().__init__(batch_first, quick_gelu)
        self.visual = Visual()
        self.logit_scale = nn.Parameter(torch.tensor(3.0))

    def encode_image(self, image, normalize=False):
        return self.visual(image)

    def encode_text(self, text, normalize=False):
        return self.forward(text)


class CustomTextCLIP(nn.Module):
    """The text encoder is a tower."""

    def __init__(self, quick_gelu):
        super().__init__()
        self.visual, self.text = Visual(), Text(True, quick_gelu, linear=True)
        self.logit_scale = nn.Parameter(torch.tensor(3.0))

    def encode_image(self, image, normalize=False):
        return self.visual(image)

    def encode_text(self, text, normalize=False):
        return self.text(text)


class SimpleTokenizer:
    """A token per word and per mark, cut at the context's length without a word, as open_clip's does."""

    context_length = CONTEXT

    def encode(self, text):
        return [1 + zlib.crc32(word.encode()) % (START - 1) for word in re.findall(r"\w+|[^\w\s]", text.lower())]

    def __call__(self, texts, context_length=None):
        rows = [[START, *self.encode(text), END][: self.context_length] for text in texts]
        return torch.tensor([row + [0] * (self.context_length - len(row)) for row in rows])


class HFTokenizer(SimpleTokenizer):
    """The other kind: it holds a tokenizer of transformers."""

    def tokenizer(self, text, add_special_tokens=True):
        ids = self.encode(text)
        return {"input_ids": [START, *ids, END] if add_special_tokens else ids}


# --- the package's functions --------------------------------------------------------------------------------

layout = "batch first"  # of the models that are made
tokenizer_kind = SimpleTokenizer


def create_model_and_transforms(name, pretrained=None, force_quick_gelu=False):
    """Return a model of random weights that depend on the name only."""
    if name != "RN50":
        raise RuntimeError(f"Model config for {name} not found.\nAvailable models: many")
    torch.manual_seed(0)
    quick = force_quick_gelu
    return (CustomTextCLIP(quick) if layout == "text tower" else CLIP(layout == "batch first", quick)), None, None


def get_pretrained_cfg(name, tag):
    return {"quick_gelu": True} if tag in QUICK else {}


def get_tokenizer(name):
    return tokenizer_kind()


def get_model_preprocess_cfg(model):
    return model.visual.preprocess_cfg
