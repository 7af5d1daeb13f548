"""Fills numbers into Markdown, and checks the chapters that quote them: the side of the ledger that needs Markdown."""

from typing import Any

from ledger.site.extension import FillExtension


def makeExtension(**options: Any) -> FillExtension:  # the name that Python-Markdown looks for
    return FillExtension(**options)
