"""Devices and processes: the mesh, what lies where on it, and several processes as one run."""
