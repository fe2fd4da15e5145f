"""`python -m bert_jax` is `bert-jax`."""

import sys

from bert_jax.main import main

sys.exit(main())
