"""What the book's pages work on beside the library: a text in two languages, a training step and recordings of it.

It is a wheel of its own, which a page's notebook installs if the page imports it; whoever plans or counts needs none.
"""
