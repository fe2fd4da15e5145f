"""Which documents go where: copies are left out, and some documents are held out.

Documents are told apart by 16-byte hashes of their text, which are sorted in memory: 64 bytes a document at most.
"""

import numpy as np

from bert_jax.errors import BadInput

TRAIN, HELDOUT, COPY = range(3)  # the first two are the splits, as numbers


def select(hashes: np.ndarray, share: float, drop_copies: bool, problems: dict) -> np.ndarray:
    """uint8[D]: TRAIN, HELDOUT or COPY for each document, by hashes uint64[D, 2].

    About `share` of the different documents are held out, those with the smallest hashes: a function of their text, not
    of their order. Copies fall into the same split; with `drop_copies`, all but the first one in the corpus are left
    out. Raises BadInput where too few documents are left; it counts `problems`, {reason: number}.
    """
    order = np.lexsort((hashes[:, 1], hashes[:, 0]))  # copies in the order of the corpus
    is_first = np.ones(len(order), bool)
    is_first[1:] = (hashes[order[1:]] != hashes[order[:-1]]).any(axis=1)
    different = int(is_first.sum())
    if different < 4:
        reasons = "".join(f", {number} {reason}" for reason, number in sorted(problems.items()))
        raise BadInput(
            f"corpus: {different} different documents with text{reasons}; two to train on and two held out are the"
            " least; is config.corpus.format right?"
        )
    wanted = min(max(2, round(share * different)), different - 2)
    state = np.full(len(order), TRAIN, np.uint8)
    state[order[np.cumsum(is_first) <= wanted]] = HELDOUT
    if drop_copies:
        state[order[~is_first]] = COPY
    return state
