"""Tokenizers built from a GGUF file's own vocabulary and merges.

Two kinds: byte-level BPE (`gpt2`: SmolLM2, Qwen2) and SentencePiece-like BPE with scores and byte
fallback (`llama`: Gemma).  The `tokenizers` library does the work.
"""

import json
import re
from pathlib import Path

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers

TYPE_CONTROL, TYPE_USER_DEFINED = 3, 4
WORDS_QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|"
               r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


class Tokenizer:
    """Text to token ids and back; `bos` is prepended where the model expects it."""

    def __init__(self, engine: tokenizers.Tokenizer, chat: dict):
        self._engine = engine
        self._chat = chat
        self.bos = chat["bos"]            # id, or None where the model wants none
        self.stop_ids = set(chat["stop_ids"])

    def encode(self, text: str, bos: bool = False) -> list:
        """Ids of `text`; names of control tokens in it become those tokens."""
        ids = self._engine.encode(text, add_special_tokens=False).ids
        return [self.bos] + ids if bos and self.bos is not None else ids

    def decode(self, ids) -> str:
        """Text of `ids`; control tokens are left out."""
        return self._engine.decode(list(ids), skip_special_tokens=True)

    def chat_text(self, user: str, system: str = None) -> str:
        """The prompt text that asks an instruct model for its answer to `user`."""
        if self._chat["style"] == "chatml":
            system = self._chat["system"] if system is None else system
            head = f"<|im_start|>system\n{system}<|im_end|>\n" if system else ""
            return f"{head}<|im_start|>user\n{user}<|im_end|>\n<|im_start|>assistant\n"
        if self._chat["style"] == "gemma":
            head = f"{system}\n\n" if system else ""
            return f"<start_of_turn>user\n{head}{user}<end_of_turn>\n<start_of_turn>model\n"
        return f"{user}\n"

    def chat_prompt(self, user: str, system: str = None) -> list:
        """Ids of `chat_text`, with the leading token that the model expects."""
        return self.encode(self.chat_text(user, system), bos=True)

    def save(self, folder: Path) -> None:
        self._engine.save(str(folder / "tokenizer.json"), pretty=False)
        (folder / "chat.json").write_text(json.dumps(self._chat))

    @classmethod
    def load(cls, folder: Path) -> "Tokenizer":
        engine = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        return cls(engine, json.loads((folder / "chat.json").read_text()))


def build_tokenizer(meta: dict) -> Tokenizer:
    """`meta` maps GGUF keys to values."""
    kind = meta.get("tokenizer.ggml.model")
    tokens, types = meta["tokenizer.ggml.tokens"], meta["tokenizer.ggml.token_type"]
    if kind == "gpt2":
        engine = _byte_level(tokens, meta)
    elif kind == "llama":
        engine = _sentence_piece(tokens, meta)
    else:
        raise ValueError(f"tokenizer model {kind!r} is neither gpt2 nor llama")
    added = [(token, type_) for token, type_ in zip(tokens, types)
             if type_ in (TYPE_CONTROL, TYPE_USER_DEFINED)]
    engine.add_special_tokens([AddedToken(t, special=True, normalized=False)
                               for t, type_ in added if type_ == TYPE_CONTROL])
    engine.add_tokens([AddedToken(t, special=False, normalized=False)
                       for t, type_ in added if type_ == TYPE_USER_DEFINED])
    return Tokenizer(engine, _chat_facts(tokens, meta))


def _byte_level(tokens: list, meta: dict) -> tokenizers.Tokenizer:
    vocab = {token: i for i, token in enumerate(tokens)}
    merges = [tuple(merge.split(" ")) for merge in meta["tokenizer.ggml.merges"]]
    engine = tokenizers.Tokenizer(models.BPE(vocab, merges))
    pattern = meta.get("tokenizer.ggml.pre")
    if pattern == "smollm":
        split = [pre_tokenizers.Digits(individual_digits=True),
                 pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)]
    elif pattern == "qwen2":
        engine.normalizer = normalizers.NFC()
        split = [pre_tokenizers.Split(Regex(WORDS_QWEN2), "isolated"),
                 pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    else:
        raise ValueError(f"the pre-tokenizer {pattern!r} is neither smollm nor qwen2")
    engine.pre_tokenizer = pre_tokenizers.Sequence(split)
    engine.decoder = decoders.ByteLevel()
    return engine


def _sentence_piece(tokens: list, meta: dict) -> tokenizers.Tokenizer:
    """The file has scores and no merges: a merge is a split of a token in two, best score first."""
    vocab = {token: i for i, token in enumerate(tokens)}
    scores, types = meta["tokenizer.ggml.scores"], meta["tokenizer.ggml.token_type"]
    merges = []
    for token, rank in vocab.items():
        if types[rank] in (TYPE_CONTROL, TYPE_USER_DEFINED):
            continue
        for cut in range(1, len(token)):
            left, right = token[:cut], token[cut:]
            if left in vocab and right in vocab:
                merges.append((-scores[rank], vocab[left], vocab[right], left, right))
    merges.sort()
    engine = tokenizers.Tokenizer(models.BPE(
        vocab, [(left, right) for *_, left, right in merges], byte_fallback=True, fuse_unk=True,
        unk_token=tokens[meta["tokenizer.ggml.unknown_token_id"]]))
    if meta.get("tokenizer.ggml.add_space_prefix", True):
        raise ValueError("a SentencePiece tokenizer that prefixes a space is not supported")
    engine.normalizer = normalizers.Replace(" ", "\u2581")
    engine.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    return engine


def _chat_facts(tokens: list, meta: dict) -> dict:
    """Style, default system prompt (from the file's own template), leading and stopping tokens."""
    template = meta.get("tokenizer.chat_template", "")
    found = re.search(r"system(?:\\n|\n)([^'{}]*?)<\|im_end\|>", template)
    stops = [meta.get("tokenizer.ggml.eos_token_id")]
    stops += [i for i, t in enumerate(tokens)
              if t in ("<|im_end|>", "<|endoftext|>", "<end_of_turn>")]
    style = "chatml" if "<|im_start|>" in template else \
        "gemma" if "<start_of_turn>" in tokens else "plain"
    wants_bos = meta.get("tokenizer.ggml.add_bos_token",
                         meta.get("tokenizer.ggml.model") == "llama")
    return {"style": style, "system": found.group(1) if found else "",
            "bos": meta.get("tokenizer.ggml.bos_token_id") if wants_bos else None,
            "stop_ids": sorted({i for i in stops if i is not None})}
