"""Is the planner right? Steps that are drawn at random are planned, and run without memory to count what they take."""
