"""What cuts text into pieces, one kind a file; bert_jax/tokenizer.py is the way in."""
