"""What a training step holds: the tape, layers written on it, state, adapters, the allocator."""
