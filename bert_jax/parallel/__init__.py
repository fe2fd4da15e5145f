"""Devices and processes: the mesh, shardings, sharding constraints, several processes as one run."""
