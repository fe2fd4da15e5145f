"""What tasks with labelled examples share."""
