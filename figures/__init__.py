"""Figures, and tables that are computed: each a function of (values, labels), one module a chapter.

A figure returns an SVG as a string, a table its rows (the header first) as lists of Markdown cells.
`values["snippet.value"]` is the plain value; `labels` are the words that the page gives, in its own language, which is
`labels["language"]` ("en" or "zh"). Charts are drawn by figures/axes.py, diagrams on figures/svg.py.
"""
