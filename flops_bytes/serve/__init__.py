"""What inference costs: the cache, prefill and decoding."""
