"""Tasks on running text: the rows of a corpus."""
