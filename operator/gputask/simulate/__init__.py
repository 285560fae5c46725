"""The planner in simulated time: discrete events without a cluster, and an independent judge of what happened."""
