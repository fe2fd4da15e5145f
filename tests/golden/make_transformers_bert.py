"""Writes transformers_bert.npz: a small BERT of Hugging Face transformers, its loss and all gradients on a batch.

python tests/golden/make_transformers_bert.py        (needs torch and transformers; made with 2.13 and 5.23)
"""

from pathlib import Path

import numpy as np
import torch
from transformers import BertConfig, BertForPreTraining

torch.manual_seed(0)
config = BertConfig(
    vocab_size=40,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=64,
    max_position_embeddings=16,
    hidden_act="gelu_new",
    initializer_range=0.2,
    layer_norm_eps=1e-12,
)
model = BertForPreTraining(config).eval()
with torch.no_grad():
    for parameter in model.parameters():
        parameter += 0.1 * torch.randn_like(parameter)  # so that no bias is zero and no scale one

rows, length = 3, 12
tokens = torch.randint(5, 40, (rows, length))
real = torch.arange(length)[None, :] < torch.tensor([[12], [9], [7]])
chosen = (torch.rand(rows, length) < 0.3) & real
batch = dict(
    input_ids=tokens * real,
    token_type_ids=((torch.arange(length) >= 5)[None, :] & real).long(),
    attention_mask=real.long(),
    labels=torch.where(chosen, torch.randint(5, 40, (rows, length)), -100),
    next_sentence_label=torch.tensor([0, 1, 1]),
)
outputs = model(**batch)
outputs.loss.backward()
arrays = {f"batch/{name}": value.numpy() for name, value in batch.items()}
arrays["loss"] = outputs.loss.detach().numpy()
for name, parameter in model.named_parameters():
    arrays[f"parameter/{name}"] = parameter.detach().numpy()
    arrays[f"gradient/{name}"] = parameter.grad.numpy()
np.savez_compressed(Path(__file__).parent / "transformers_bert.npz", **arrays)
