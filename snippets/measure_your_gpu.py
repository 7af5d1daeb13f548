"""A step of one's own is counted without a GPU: by kind, by line of code, and on a card; and watched as it runs."""

# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# ///
