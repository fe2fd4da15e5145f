"""The layers that networks are made of, and the count of their FLOPs."""
