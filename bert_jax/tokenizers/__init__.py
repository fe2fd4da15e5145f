"""What cuts text into pieces, one kind a file; bert_jax/tokenizers/tokenizer.py is the way in."""
