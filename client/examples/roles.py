"""The quickstart's workers, a process each: `roles.py ROLE --work DIR --socket PATH`.

a     prefills the prompt and offloads its blocks while it goes
b     finds the prompt's chain, loads it, skips that prefill
c     opens the chain as a context and answers over retrieved rows, beside full attention
share puts a whole chain that another worker puts at the same moment

Each reads DIR/prompt.json, writes DIR/ROLE.json, and shows progress on stderr.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np

import cairn
from worker import FullAttention, KvCache, load_model
from worker.offloaded import (BLOCK_TOKENS, RetrievedAttention, load_prefix, offload_prefill,
                              space_config)


def progress(what):
    """A callback (done, total) that keeps one line of stderr up to date, on a terminal or not."""
    begun, last = time.monotonic(), [0.0]

    def show(done, total):
        now = time.monotonic()
        if now - last[0] < 2 and done < total:
            return
        last[0] = now
        left = (now - begun) / max(done, 1) * (total - done)
        print(f"    {what}: {done}/{total} ({left:.0f} s left)", file=sys.stderr, flush=True)
    return show


def worker_a(model, space, prompt, work):
    tokens, cache = prompt["document"], KvCache(model.config)
    begun = time.monotonic()
    logits = offload_prefill(model, space, tokens + prompt["question"], cache, progress("prefill"))
    seconds = time.monotonic() - begun
    np.save(work / "a_logits.npy", logits)
    return {"tokens": cache.length, "ttft_s": seconds,
            "blocks_put": cache.length // BLOCK_TOKENS}


def worker_b(model, space, prompt, work):
    tokens, cache = prompt["document"] + prompt["question"], KvCache(model.config)
    begun = time.monotonic()
    reused = load_prefix(space, tokens, cache)
    logits = model.prefill(tokens[reused:], cache)
    seconds = time.monotonic() - begun
    difference = np.abs(logits - np.load(work / "a_logits.npy")).max()
    return {"tokens": len(tokens), "tokens_reused": reused, "ttft_s": seconds,
            "max_logit_diff": float(difference)}


def negative_log_likelihood(logits, answer):
    logits = logits.astype(np.float64)
    top = logits.max(1, keepdims=True)
    total = top[:, 0] + np.log(np.exp(logits - top).sum(1))
    return float((total - logits[np.arange(len(answer)), answer]).mean())


def kl_divergence(full, other):
    """Mean over steps of KL(full || other) of the next-token distributions, nats."""
    def log_softmax(x):
        x = x.astype(np.float64)
        x = x - x.max(1, keepdims=True)
        return x - np.log(np.exp(x).sum(1, keepdims=True))
    p, q = log_softmax(full), log_softmax(other)
    return float((np.exp(p) * (p - q)).sum(1).mean())


def score(model, context, cache, first, prompt, full, method):
    """Teacher-forces the gold answer over retrieved rows; compares with full attention."""
    answer = prompt["answer"]
    attention = RetrievedAttention(model, context, cache, prompt["share"], **method)
    logits = model.score_answer(answer, first, cache.length, attention)
    return {"nll": negative_log_likelihood(logits, answer),
            "agreement": float((logits.argmax(1) == full.argmax(1)).mean()),
            "kl": kl_divergence(full, logits),
            "tokens_touched_share": attention.rows_fetched / max(attention.rows_seen, 1),
            "bytes_per_step": attention.bytes_moved / max(len(answer) - 1, 1)}


def decode(model, context, cache, first, prompt, count):
    """Greedy decoding step by step, every step with its own retrieval: (text, ms a token)."""
    attention = RetrievedAttention(model, context, cache, prompt["share"], rest=True)
    tokens, logits, begun = [], first, time.monotonic()
    for i in range(count):
        tokens.append(int(logits.argmax()))
        if tokens[-1] in model.tokenizer.stop_ids:
            break
        logits = model.step(tokens[-1], cache.length + i, attention)
    return model.tokenizer.decode(tokens), 1e3 * (time.monotonic() - begun) / len(tokens)


def worker_c(model, space, prompt, work):
    tokens, cache = prompt["document"] + prompt["question"], KvCache(model.config)
    reused = load_prefix(space, tokens, cache)
    first = model.prefill(tokens[reused:], cache)
    keys = space.chain_keys(tokens)
    full = model.score_answer(prompt["answer"], first, cache.length, FullAttention(cache.copy()))
    config = model.config
    token_bytes = 2 * config.layers * config.kv_heads * config.head_dim * 4
    results = {"tokens": cache.length, "answer_tokens": len(prompt["answer"]),
               "nll_full": negative_log_likelihood(full, prompt["answer"]),
               "bytes_per_step_full": token_bytes * cache.length}
    with space.open_context(keys) as context:
        tail = context.tokens
        if tail < cache.length:
            context.append(*cache.rows(tail, cache.length))
        for name, method in prompt["methods"].items():
            print(f"    scoring: {name}", file=sys.stderr, flush=True)
            results[name] = score(model, context, cache, first, prompt, full, method)
        print("    decoding, a retrieval every step", file=sys.stderr, flush=True)
        results["text"], results["ms_per_token"] = decode(model, context, cache, first, prompt, 24)
    return results


def worker_share(model, space, prompt, work):
    """Puts the prompt's blocks under another salt, as soon as the go file is there."""
    tokens, cache = prompt["document"], KvCache(model.config)
    load_prefix(space, tokens, cache)
    blocks = cache.length // BLOCK_TOKENS
    keys = space.chain_keys(tokens[:blocks * BLOCK_TOKENS], salt=b"quickstart, shared")
    packed = [space.pack_block(*cache.rows(i * BLOCK_TOKENS, (i + 1) * BLOCK_TOKENS))
              for i in range(blocks)]
    (work / f"ready.{time.monotonic_ns()}").touch()
    while not (work / "go").exists():
        time.sleep(0.005)
    statuses = space.put(keys, packed, ack="disk")
    return {"blocks": blocks, "already_there": sum(1 for s in statuses if s == cairn.Status.EEXIST),
            "stored": sum(1 for s in statuses if s == cairn.Status.OK)}


def main():
    roles = {"a": worker_a, "b": worker_b, "c": worker_c, "share": worker_share}
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("role", choices=roles)
    parser.add_argument("--work", type=Path, required=True, help="folder with prompt.json")
    parser.add_argument("--socket", required=True, help="cairnd's socket")
    parser.add_argument("--output", required=True, help="name of the result in the folder")
    args = parser.parse_args()
    prompt = json.loads((args.work / "prompt.json").read_text())
    model = load_model(prompt["model"])
    with cairn.Client(args.socket) as client:
        space = client.open_space(space_config(model, **prompt["space"]))
        result = roles[args.role](model, space, prompt, args.work)
    (args.work / args.output).write_text(json.dumps(result))


if __name__ == "__main__":
    main()
