"""A reference inference worker in NumPy: small, readable, fp32, with pluggable attention and KV.

    from worker import load_model, KvCache
    model = load_model("smollm2")                      # or a path of a GGUF file
    cache = KvCache(model.config)
    tokens = model.tokenizer.chat_prompt("Why is the sky blue?")
    logits = model.prefill(tokens, cache)
"""

from .attention import FullAttention, KvCache
from .config import Config
from .model import BLOCK_TOKENS, Model, load_model
from .tokenizer import Tokenizer
from .weights import WeightsError

__all__ = ["BLOCK_TOKENS", "Config", "FullAttention", "KvCache", "Model", "Tokenizer",
           "WeightsError", "load_model"]
