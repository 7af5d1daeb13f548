# /// script
# requires-python = ">=3.11"
# dependencies = ["fonttools", "brotli"]
# ///
"""Cuts Latin Modern Math down to what the book's formulas use: `uv run make.py latinmodern-math.otf`.

The font is on CTAN (lm-math) and in Debian's package fonts-lmodern. Upright letters are left to the text's own font.
"""

import sys
from pathlib import Path

from fontTools import subset
from fontTools.ttLib import TTFont

HERE = Path(__file__).parent
CHARACTERS = (HERE / "characters.txt").read_text(encoding="utf-8").split()
GREEK = "αβγδεζηθικλμνξοπρςστυφχψω∂"
TALL = "(){}[]"  # a column of fractions stands between them; other brackets stay near the height of a line
SIZES = {
    "tall": 5,
    "radical": 5,
    "summation": 2,
}  # sizes of a sign that are kept; of others two


def in_italics(character: str) -> int:
    """Where Unicode has the letter as a variable of mathematics, which a browser shows for a lone letter."""
    if character == "h":
        return 0x210E
    if character in GREEK:
        return 0x1D6FC + GREEK.index(character)
    first = (0x1D434, "A") if character.isupper() else (0x1D44E, "a")
    return first[0] + ord(character) - ord(first[1])


def is_variable(character: str) -> bool:
    return character in GREEK or (character.isascii() and character.isalpha())


def main(source: str) -> None:
    font = TTFont(source)
    names = font.getBestCmap()
    sizes = SIZES | {names[ord(character)]: SIZES["tall"] for character in TALL}
    variants = font["MATH"].table.MathVariants
    pairs = zip(variants.VertGlyphCoverage.glyphs, variants.VertGlyphConstruction, strict=True)
    for glyph, construction in pairs:
        construction.MathGlyphVariantRecord = construction.MathGlyphVariantRecord[: sizes.get(glyph, 2)]
    variants.HorizGlyphCoverage = variants.HorizGlyphConstruction = None
    variants.HorizGlyphCount = 0
    options = subset.Options(layout_features=[], hinting=False, desubroutinize=True, name_IDs=[], flavor="woff2")
    options.drop_tables += ["FFTM"]
    subsetter = subset.Subsetter(options)
    codes = {in_italics(one) if is_variable(one) else ord(one) for one in CHARACTERS}
    subsetter.populate(unicodes=codes | {ord("-"), ord("\N{MINUS SIGN}"), ord("√")})
    subsetter.subset(font)
    subset.save_font(font, str(HERE / "math.woff2"), options)


if __name__ == "__main__":
    main(sys.argv[1])
