"""What training a neural network costs, in bytes and FLOPs: counters, clocks, formulas, models, a planner."""
