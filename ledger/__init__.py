"""Runs the book's snippets, keeps what they measured as records, and fills the numbers into its chapters."""
