"""Makes golden/<model>.json: llama.cpp's token ids and next-token logits for PROMPTS.

Run it only to renew them:  pip install "numpy>=2" gguf tokenizers xllamacpp==2026.10.11549, then
    PYTHONPATH=client/examples python tests/e2e/make_golden_logits.py [smollm2 qwen2 gemma3]

The extension module of xllamacpp exports llama.cpp's C API; ctypes calls it.  For each prompt two
sets of logits are written: `quantized`, of the file as it is (llama.cpp then rounds activations to
8 bits in every product with a quantized weight), and `f32`, of the same weights dequantized
(no such rounding: what an fp32 worker should match closely).  K and V are fp32 in both.
Each set has the TOP largest logits and SPREAD more from evenly spaced ids.
"""

import ctypes
import glob
import importlib.util
import json
import os
import sys
import tempfile
from pathlib import Path

import gguf
import numpy as np

TOP, SPREAD = 64, 64
GOLDEN_DIR = Path(__file__).parent / "golden"

PROMPTS = (
    "The capital of France is",
    "Once upon a time there was a small robot who",
    "def fibonacci(n):\n    if n < 2:\n        return n\n    return",
    "Water boils at 100 degrees Celsius, which is 212 degrees",
    "1, 2, 4, 8, 16, 32, 64,",
    "She said: \"I don't think we've met; you're the surveyor's",
    "Monday, Tuesday, Wednesday, Thursday,",
    "The chemical formula of water is H2O, and that of carbon dioxide is",
    "{\"name\": \"Marta\", \"city\": \"Lisbon\", \"badge\": \"KX-4821\"}, {\"name\": \"",
    "Roses are red, violets are",
    "In 1969 the first people walked on the",
    "Der schnelle braune Fuchs springt \u00fcber den faulen",
    "Caf\u00e9 na\u00efve \u2013 \u00e9t\u00e9, \u6771\u4eac, "
    "\u041c\u043e\u0441\u043a\u0432\u0430, \U0001f642 and then",
    "A list:\n\n- apples\n- pears\n-",
    "    indented   text\twith tabs  and   runs of spaces, then",
    "SELECT name, COUNT(*) FROM orders WHERE price > 9.99 GROUP BY",
    "<|im_start|>user\nWhat is the capital of Japan?<|im_end|>\n<|im_start|>assistant\n",
    "<|im_start|>system\nAnswer in one word.<|im_end|>\n<|im_start|>user\nWhich planet is the "
    "largest?<|im_end|>\n<|im_start|>assistant\nThe largest planet is",
    "To make bread you need flour, water, salt and yeast. First mix the flour with the water and "
    "let it rest for half an hour. Then add the salt and the yeast, knead the dough, and let it",
    "The ledger lists four crates. Crate one holds barley. Crate two holds copper. Crate three "
    "holds cork. Crate four holds tin. Question: what does crate two hold? Answer: crate two holds",
)

TYPE_F32, TYPE_F16 = 0, 1
# Indices of 32-bit words in llama_context_params.
N_CTX, N_BATCH, N_UBATCH, N_THREADS, N_THREADS_BATCH, FLASH, TYPE_K, TYPE_V = \
    0, 1, 2, 7, 8, 13, 26, 27


class Params(ctypes.Structure):
    """Larger than any params struct of the API, which are passed last and by value in memory."""

    _fields_ = [("words", ctypes.c_uint32 * 128)]


class Batch(ctypes.Structure):
    _fields_ = [("n_tokens", ctypes.c_int32)] + [
        (name, ctypes.c_void_p)
        for name in ("token", "embd", "pos", "n_seq_id", "seq_id", "logits")]


def load_api():
    """The C API as a ctypes library; the module is not imported, only its shared object loaded."""
    package = Path(importlib.util.find_spec("xllamacpp").origin).parent
    api = ctypes.CDLL(glob.glob(str(package / "xllamacpp*.so"))[0], mode=ctypes.RTLD_LOCAL)
    pointer, i32 = ctypes.c_void_p, ctypes.c_int32
    for name, result, arguments in (
            ("llama_model_default_params", Params, []),
            ("llama_context_default_params", Params, []),
            ("llama_model_load_from_file", pointer, [ctypes.c_char_p, Params]),
            ("llama_init_from_model", pointer, [pointer, Params]),
            ("llama_model_get_vocab", pointer, [pointer]),
            ("llama_vocab_n_tokens", i32, [pointer]),
            ("llama_tokenize", i32, [pointer, ctypes.c_char_p, i32, pointer, i32, ctypes.c_bool,
                                     ctypes.c_bool]),
            ("llama_batch_get_one", Batch, [pointer, i32]),
            ("llama_decode", i32, [pointer, Batch]),
            ("llama_get_logits_ith", ctypes.POINTER(ctypes.c_float), [pointer, i32]),
            ("llama_free", None, [pointer]), ("llama_model_free", None, [pointer])):
        function = getattr(api, name)
        function.restype, function.argtypes = result, arguments
    return api


class Reference:
    """One model in llama.cpp; a new context for each prompt."""

    def __init__(self, api, path):
        self.api = api
        self.model = api.llama_model_load_from_file(os.fsencode(path),
                                                    api.llama_model_default_params())
        if not self.model:
            raise RuntimeError(f"llama.cpp cannot load {path}")
        self.vocab = api.llama_model_get_vocab(self.model)

    def tokenize(self, text):
        data = text.encode()
        ids = (ctypes.c_int32 * (len(data) + 8))()
        count = self.api.llama_tokenize(self.vocab, data, len(data), ids, len(ids), True, True)
        assert count > 0
        return list(ids[:count])

    def logits(self, tokens):
        params = self.api.llama_context_default_params()
        words = params.words
        told = (words[N_CTX], words[N_BATCH], words[N_UBATCH], words[TYPE_K], words[TYPE_V])
        assert told == (512, 2048, 512, TYPE_F16, TYPE_F16), f"another struct layout: {told}"
        words[TYPE_K] = words[TYPE_V] = TYPE_F32
        words[FLASH] = 0                                # its kernel rounds to fp16
        words[N_THREADS] = words[N_THREADS_BATCH] = 2
        context = self.api.llama_init_from_model(self.model, params)
        ids = (ctypes.c_int32 * len(tokens))(*tokens)
        status = self.api.llama_decode(context, self.api.llama_batch_get_one(ids, len(tokens)))
        assert status == 0, f"llama_decode: {status}"
        count = self.api.llama_vocab_n_tokens(self.vocab)
        result = np.ctypeslib.as_array(self.api.llama_get_logits_ith(context, -1), (count,)).copy()
        self.api.llama_free(context)
        return result

    def close(self):
        self.api.llama_model_free(self.model)


def dequantize_file(source, target):
    """Copies a GGUF file, with all tensors as fp32."""
    reader = gguf.GGUFReader(source)
    arch = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(target, arch)
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key == "general.architecture":
            continue
        kind = field.types[0]
        inner = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(key, field.contents(), kind, sub_type=inner)
    for tensor in reader.tensors:
        array = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        writer.add_tensor(tensor.name, np.ascontiguousarray(array, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def chosen(logits, ids=None):
    """The ids to keep and their logits; `ids` given: those."""
    if ids is None:
        top = np.argsort(-logits, kind="stable")[:TOP]
        spread = np.linspace(0, len(logits) - 1, SPREAD).astype(int)
        ids = np.concatenate([top, spread])
    return [int(i) for i in ids], [round(float(logits[i]), 4) for i in ids]


def make(api, name, path):
    cases = []
    with tempfile.TemporaryDirectory() as folder:
        dequantize_file(path, f"{folder}/f32.gguf")
        as_is, in_f32 = Reference(api, path), Reference(api, f"{folder}/f32.gguf")
        for prompt in PROMPTS:
            tokens = as_is.tokenize(prompt)
            ids, f32 = chosen(in_f32.logits(tokens))
            _, quantized = chosen(as_is.logits(tokens), ids)
            cases.append({"prompt": prompt, "tokens": tokens, "ids": ids, "f32": f32,
                          "quantized": quantized})
        as_is.close()
        in_f32.close()
    GOLDEN_DIR.mkdir(exist_ok=True)
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    (GOLDEN_DIR / f"{name}.json").write_text(f"[{lines}]\n")
    print(f"{name}: {len(cases)} prompts")


def main():
    from worker import weights
    api = load_api()
    for name in sys.argv[1:] or list(weights.MODELS):
        make(api, name, weights.fetch(name))


if __name__ == "__main__":
    main()
