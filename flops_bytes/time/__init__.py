"""How long operations take: cards, and rates of kernels that others published."""
