"""A task, an objective and a model that no file of the package knows: what a user adds, one file each.

B rows, L length, S sequences packed in a row, D width.
"""
