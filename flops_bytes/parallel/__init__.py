"""What a rank holds and sends, and how long it waits."""
