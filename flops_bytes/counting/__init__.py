"""The oracle: whole training steps, run without memory and counted. It needs torch."""
