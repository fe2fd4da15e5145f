"""A task, an objective and a model that no file of the package knows: what a user adds, one file each."""
