"""Draw docs/figures/ristretto.svg: what a client of Ristretto sends, what the server makes of it, what comes back.

python tools/make_ristretto_picture.py
"""

from pathlib import Path
from xml.sax.saxutils import escape

TARGET = Path(__file__).parents[1] / "docs" / "figures" / "ristretto.svg"
INK, SOFT, PAGE, COFFEE = "#22262b", "#6b7280", "#ffffff", "#4a2c17"
WIDTH, HEIGHT, LINE = 960, 330, 21

CLIENT = (
    "zero-shot logits  z⁰ = s T f",
    "the head's        h = A f + b",
    "answer: the largest of z⁰ + h",
    "soft labels  p = softmax(z⁰ + w h)",
    "counts  N += p,   sums  S += p f",
)
SERVER = (
    "1  noise: how far images lie from class means",
    "2  routes: whose evidence this client can use",
    "3  pooling: class offsets of its neighbourhood",
    "4  covariance: one vote per client",
    "5  discriminant: (Σ + ρ)⁻¹ × offsets",
    "6  fusion: scaled by the share of evidence w",
)
OTHERS = ("client 2", "client 3", "client n")


def text(x: float, y: float, words: str, size: int = 14, colour: str = INK, weight: str = "normal") -> str:
    style = f'font-size="{size}" fill="{colour}" font-weight="{weight}" xml:space="preserve"'
    return f'<text x="{x:g}" y="{y:g}" {style}>{escape(words)}</text>'


def box(x: float, y: float, width: float, height: float, title: str, lines: tuple[str, ...] = ()) -> str:
    frame = f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="8" fill="{PAGE}" stroke="{SOFT}"/>'
    rows = [text(x + 14, y + 52 + LINE * i, words) for i, words in enumerate(lines)]
    return "\n".join([frame, text(x + 14, y + 26, title, 15, COFFEE, "bold"), *rows])


def arrow(x1: float, y1: float, x2: float, y2: float, words: str = "", above: float = 8) -> str:
    line = f'<path d="M{x1:g} {y1:g} L{x2:g} {y2:g}" stroke="{COFFEE}" stroke-width="2" marker-end="url(#tip)"/>'
    return line + ("\n" + text(min(x1, x2) + 8, y1 - above, words, 13, COFFEE) if words else "")


def picture() -> str:
    tip = '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    tip += f'<path d="M0 0 L8 4 L0 8 z" fill="{COFFEE}"/></marker>'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" role="img">',
        "<title>Ristretto: class sums go up, a personal linear head comes down</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="{PAGE}"/><defs>{tip}</defs>',
        box(12, 34, 290, 172, "client 1: every image f", CLIENT),
        box(540, 34, 408, 194, "server: everyone's latest counts and means", SERVER),
        arrow(306, 84, 532, 84, "after 1, 2, 4, 8, 16 images,"),
        text(314, 104, "then every 16: N and S/N", 13, COFFEE),
        arrow(532, 172, 306, 172, "head A, bias b, trust w"),
        text(340, 192, "4 C D + 8 C + 4 bytes", 13, SOFT),
        *(box(540 + 140 * i, 272, 128, 44, name) for i, name in enumerate(OTHERS)),
        *(arrow(594 + 140 * i, 268, 594 + 140 * i, 232) for i in range(3)),
        *(arrow(614 + 140 * i, 232, 614 + 140 * i, 268) for i in range(3)),
        text(12, 262, "No evidence: w = 0, the answer is zero-shot's. Alone: a client is its own server.", 13, SOFT),
        text(
            12, 284, "No images, labels or gradients are sent; but the first upload is the first embedding.", 13, SOFT
        ),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    TARGET.write_text(picture(), encoding="utf-8")
