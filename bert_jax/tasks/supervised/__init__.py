"""The parts that tasks with labelled examples share."""
