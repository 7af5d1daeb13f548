# /// script
# requires-python = ">=3.11"
# dependencies = ["fonttools", "brotli"]
# ///
"""Cuts Source Serif 4 down to the English book's letters: `uv run text.py regular.woff2 bold.woff2 italic.woff2`.

They are files/source-serif-4-latin-400-normal.woff2, -700-normal and -400-italic of npm's @fontsource/source-serif-4
5.3.1. All have to fit into a first visit, so letters that are not upright and regular go without kerning.
"""

import sys
from pathlib import Path

from fontTools import subset
from fontTools.ttLib import TTFont

FOLDER = Path(__file__).parents[3] / "docs" / "overrides" / "text"
LETTERS = "".join(map(chr, range(0x20, 0x7F))) + "‘’“”–…·×−é§"


def main(*sources: str) -> None:
    for source, name in zip(sources, ("regular", "bold", "italic"), strict=True):
        font = TTFont(source)
        features = ["kern", "tnum"] if name == "regular" else ["tnum"]
        options = subset.Options(layout_features=features, hinting=False, name_IDs=[], flavor="woff2")
        subsetter = subset.Subsetter(options)
        subsetter.populate(text=LETTERS)
        subsetter.subset(font)
        subset.save_font(font, str(FOLDER / f"{name}.woff2"), options)


if __name__ == "__main__":
    main(*sys.argv[1:])
