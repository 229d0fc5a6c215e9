"""Agreement of ONNX folders with the open_clip models they were exported from, for architectures of the field.

    python benchmarks/device/export_agreement.py [--models RN50,ViT-B-16,...] [--variants fp32,int8]

The weights are random, because no weights can be had here: what is tested is the export of every operator. SigLIP gets
a small tokenizer of its own. Prints a table in Markdown: cosines on 16 synthetic pictures and 35 prompts, the largest
difference of any number in a row, sizes, and milliseconds per picture (batches of 8, one thread) in torch and in ONNX.
"""

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

import open_clip
import torch
from open_clip.tokenizer import HFTokenizer

from latte.encoders import load_encoder
from latte.encoders.export import export_onnx, synthetic_pictures
from latte.encoders.open_clip import OpenClipEncoder, _preprocess

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "support"))
import tiny_models

MODELS = "ViT-B-16,RN50,MobileCLIP-S1,ViT-B-16-SigLIP"


def random_encoder(name: str, folder: Path) -> OpenClipEncoder:
    torch.manual_seed(0)
    model = open_clip.create_model(name, force_quick_gelu=name == "RN50")
    if "SigLIP" in name:
        tiny_models.write_tokenizer(folder, "<s>", "</s>", 64)
        tokenizer = HFTokenizer(str(folder), context_length=64, clean="canonicalize")
    else:
        tokenizer = open_clip.get_tokenizer(name)
    return OpenClipEncoder(f"openclip:{name}/random", model, tokenizer, _preprocess(open_clip, model))


def milliseconds(encode, pixels, rounds: int = 5) -> float:
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        encode(pixels)
        times.append(1000 * (time.perf_counter() - start) / len(pixels))
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default=MODELS)
    parser.add_argument("--variants", default="fp32,int8")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("| model | variant | image cosine, least | text cosine, least | largest difference | MB | torch | ONNX |")
    print("|:--|:--|--:|--:|--:|--:|--:|--:|")
    for name in options.models.split(","):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "tokenizer").mkdir()
            encoder = random_encoder(name, Path(folder) / "tokenizer")
            pixels = synthetic_pictures(8, encoder.preprocess.size)
            original = milliseconds(encoder.images, pixels)
            for one in export_onnx(encoder, Path(folder) / "out", options.variants.split(",")):
                copy = load_encoder(f"onnx:{one.folder}", threads=1)
                speed = milliseconds(copy.images, pixels)
                print(
                    f"| {name} | {one.variant} | {one.image_min:.7f} | {one.text_min:.7f} | {one.largest:.1e} "
                    f"| {one.bytes / 1e6:.0f} | {original:.0f} ms | {speed:.0f} ms |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
