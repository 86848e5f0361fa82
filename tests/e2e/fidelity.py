"""How close answers over retrieved rows come to full attention, on real models, by the daemon itself.

    tests/e2e/fidelity [--models smollm2,gemma3,qwen2] [--documents json,lookup,prose] [--tokens N]
        [--steps N] [--quick] [--json FILE] [--plot FILE.svg]

Teacher-forces a gold answer (for prose: the model's own greedy one) over each method and prints
method x budget: recall, attention mass lost, output error, KL, agreement, rise of the negative
log-likelihood, bytes a step. cairnd does what is named cairn-*, nacl-drop, nacl-demote, exact-topk, chunk-mean
and quest; yakv and nacl-numpy (which drops) are the NumPy references of reference.py.
"""

import argparse
import hashlib
import json
import os
import sys
import time
from pathlib import Path

import numpy as np

import cairn
import documents
import fidelity_report
import fidelity_retention
import metrics
import reference
from private_daemon import PrivateDaemon
from worker import FullAttention, KvCache, load_model
from worker.offloaded import BLOCK_TOKENS, RetrievedAttention, space_config

SHARE = 0.03125
SPACES = {  # name -> codes of the space
    "exact": {"landmark_bits": 0, "k_codec": "raw", "v_codec": "raw"},
    "1b": {"landmark_bits": 1},
    "2b": {"landmark_bits": 2},
    "2b-raw": {"landmark_bits": 2, "k_codec": "raw", "v_codec": "raw"},
    "4b": {"landmark_bits": 4, "value_bits": 4},
}
METHODS = [  # name, space, share, options of a retrieval
    ("exact-topk", "exact", SHARE, {}),
    ("chunk-mean", "2b", SHARE, {"landmark": "chunk-mean", "chunk_tokens": 8}),
    ("quest", "2b", SHARE, {"landmark": "chunk-minmax", "chunk_tokens": 16}),
    ("cairn-1b", "1b", SHARE, {}),
    ("cairn-2b", "2b", SHARE, {}),
    ("cairn-2b-exact-rows", "2b-raw", SHARE, {}),
    ("cairn-1b+rest", "1b", SHARE, {"rest": True}),
    ("cairn-2b+rest", "2b", SHARE, {"rest": True}),
    ("cairn-4b+rest", "4b", SHARE, {"rest": True}),
    ("cairn-2b+rest", "2b", 0.01, {"rest": True}),
    ("cairn-2b+rest", "2b", 0.005, {"rest": True}),
]
QUICK = {"exact-topk", "chunk-mean", "cairn-2b", "cairn-2b+rest"} | fidelity_retention.NAMES
RERANK = {"gemma3": 3.0}  # candidates a chosen row; others take the daemon's default


def say(text):
    print(text, file=sys.stderr, flush=True)


class Measured(RetrievedAttention):
    """Retrieved attention that holds each step against exact attention over all tokens."""

    def __init__(self, model, context, cache, share, *, rerank=0.0, **options):
        super().__init__(model, context, cache, share, **options)
        self.options["rerank"] = rerank
        self.cache = cache
        self.recall, self.lost, self.error, self.covered, self.bars, self.gaps = [], [], [], [], [], []

    def _attend_steps(self, layer, q, now, positions, k, v):
        out = super()._attend_steps(layer, q, now, positions, k, v)
        if not self.config.is_local(layer):
            for head in range(self.config.kv_heads):
                group = slice(head * self.config.group, (head + 1) * self.config.group)
                self._measure(layer, head, q[:, group], out[:, group], now, positions, k, v)
        return out

    def _chosen(self, head):
        return self.found.positions[:, head], self.found.counts[:, head]

    def _measure(self, layer, head, q, out, now, positions, k, v):
        generated = positions >= self.prompt
        keys = np.concatenate([self.cache.k[layer, head, :self.prompt], k[head][generated]])
        values = np.concatenate([self.cache.v[layer, head, :self.prompt], v[head][generated]])
        scores = (q * np.float32(self.config.attention_scale)) @ keys.T
        scores[:, :, self.prompt:][np.broadcast_to(
            (positions[generated] > now[:, None])[:, None], scores[:, :, self.prompt:].shape)] = -np.inf
        weights = reference.softmax(scores)
        exact = weights @ values
        first, end = self.sinks, max(self.sinks, self.prompt - self.recent)
        middle = weights[:, :, first:end]
        chosen, counts = self._chosen(head)
        group = slice(head * self.config.group, (head + 1) * self.config.group)
        bar = self.found.mass_error[:, group]
        mass = np.exp(self.found.lse_chosen[:, group] - self.found.lse_all[:, group])
        for step in range(len(q)):
            mine = chosen[step, :counts[step]] - first
            best = reference.top_k(middle[step].max(0), len(mine))
            self.recall.append(len(np.intersect1d(best, mine)) / max(1, len(best)))
            held = middle[step][:, mine].sum(1) / np.maximum(middle[step].sum(1), 1e-30)
            self.covered.extend(np.abs(held - mass[step]) <= 2 * bar[step] + 1e-3)
            self.bars.extend(bar[step])
            self.gaps.extend(held - mass[step])
            self.lost.extend(middle[step].sum(1) - middle[step][:, mine].sum(1))
        norm = np.linalg.norm(exact, axis=2)
        self.error.append((np.linalg.norm(out - exact, axis=2) / np.maximum(norm, 1e-30)).mean())

    def report(self, steps):
        lost = np.array(self.lost)
        return {"recall": float(np.mean(self.recall)), "mass_lost": float(lost.mean()),
                "mass_lost_p95": float(np.quantile(lost, 0.95)),
                "output_error": float(np.mean(self.error)), "mass_coverage": float(np.mean(self.covered)),
                "mass_bar": float(np.mean(self.bars)), "mass_gap": float(np.sqrt(np.mean(np.square(self.gaps)))),
                "bytes_per_step": self.bytes_moved / steps}


class Case:
    """One model and document: prompt prefilled, gold answer scored by full attention."""

    def __init__(self, model, name, kind, args):
        self.model, self.name, self.kind = model, name, kind
        make = getattr(documents, {"json": "text2json"}.get(kind, kind))
        document = make(args.seed, args.tokens, lambda text: len(model.tokenizer.encode(text)))
        head, question, answer = document.prompt_parts(model.tokenizer)
        self.prompt = head + question
        self.cache = KvCache(model.config, len(self.prompt))
        self.first, self.queries = self._prefill(args)
        if not answer:
            answer = self._own_answer(min(args.steps, 100))
        self.answer = answer[:args.steps]
        self.full = metrics.full_answer_logits(model, self.cache, self.first, self.answer)

    def _prefill(self, args):
        """Prefills, or takes what an earlier run of the same prompt has kept."""
        proxies = max(1, len(self.prompt) // 100)
        ids = hashlib.sha256(np.array(self.prompt, np.uint32).tobytes()).hexdigest()[:16]
        kept = args.keep / f"{self.name}-{ids}.npz" if args.keep else None
        if kept and kept.exists():
            with np.load(kept) as saved:
                self.cache.load_kv(saved["k"], saved["v"])
                return saved["first"], saved["queries"]
        begun = time.monotonic()
        first, queries = reference.prefill_with_queries(self.model, self.prompt, self.cache, proxies)
        say(f"  {len(self.prompt)} tokens prefilled in {time.monotonic() - begun:.0f} s")
        if kept:
            kept.parent.mkdir(parents=True, exist_ok=True)
            k, v = self.cache.rows(0, self.cache.length)
            part = kept.with_suffix(".part.npz")
            np.savez(part, k=k, v=v, first=first, queries=queries)
            os.replace(part, kept)
        return first, queries

    def _own_answer(self, count):
        """What the model itself says, greedily, with full attention."""
        attention, logits, answer = FullAttention(self.cache), self.first, []
        for i in range(count):
            answer.append(int(logits.argmax()))
            if answer[-1] in self.model.tokenizer.stop_ids:
                break
            logits = self.model.step(answer[-1], len(self.prompt) + i, attention)
        self.cache.truncate(len(self.prompt))
        return answer

    def row(self, method, budget, logits, more):
        compared = metrics.compare(self.full, logits, self.answer)
        row = {"model": self.name, "document": self.kind, "tokens": len(self.prompt),
               "method": method, "budget": budget, "kl": compared["kl"],
               "agreement": compared["agreement"], "dnll": compared["nll_rise"], **more}
        say(f"  {method:22} {100 * budget:6.2f} %  KL {row['kl']:.5f}  agreement {row['agreement']:.3f}")
        return row


def put_chain(space, case):
    """Puts the prompt's full blocks and opens them, and the tail, as a context."""
    keys = space.chain_keys(case.prompt)
    for i, key in enumerate(keys):
        k, v = case.cache.rows(i * BLOCK_TOKENS, (i + 1) * BLOCK_TOKENS)
        space.put([key], [space.pack_block(k, v)], parent=keys[i - 1] if i else None)
    context = space.open_context(keys)
    if context.tokens < case.cache.length:
        context.append(*case.cache.rows(context.tokens, case.cache.length))
    return keys, context


def served_methods(client, case, wanted):
    """Rows of all methods that the daemon serves; each space lives while its methods run."""
    steps = max(1, len(case.answer) - 1)
    for name, codes in SPACES.items():
        methods = [m for m in METHODS if m[1] == name and (wanted is None or m[0] in wanted)]
        if not methods:
            continue
        space = client.open_space(space_config(case.model, revision=case.kind, **codes))
        keys, context = put_chain(space, case)
        with context:
            for method, _, share, options in methods:
                attention = Measured(case.model, context, case.cache, share,
                                     rerank=RERANK.get(case.name, 0.0), **options)
                logits = case.model.score_answer(case.answer, case.first, case.cache.length, attention)
                yield case.row(method, share, logits, attention.report(steps))
        space.delete(keys)


def retained_methods(client, case, wanted):
    """Rows of what the daemon's Retain keeps: dropped for good, or demoted and still found."""
    steps = max(1, len(case.answer) - 1)
    if wanted is not None and not wanted & fidelity_retention.NAMES:
        return
    space = client.open_space(space_config(case.model, revision=case.kind, **SPACES["2b"]))
    keys, context = put_chain(space, case)
    with context:
        for name, budget, attention in fidelity_retention.methods(case, context, SHARE,
                                                                  RERANK.get(case.name, 0.0)):
            if wanted is not None and name not in wanted:
                continue
            logits = case.model.score_answer(case.answer, case.first, case.cache.length, attention)
            yield case.row(name, budget, logits, attention.report(steps))
    space.delete(keys)


def reference_methods(case, wanted):
    """Rows of the methods that only NumPy has."""
    builders = {"yakv": (SHARE, lambda: reference.Yakv(case.cache, share=SHARE)),
                "nacl-numpy": (0.2, lambda: reference.NaclDrop(case.cache, case.queries))}
    steps = max(1, len(case.answer) - 1)
    for name, (budget, build) in builders.items():
        if wanted is not None and name not in wanted:
            continue
        method = build()
        logits = case.model.score_answer(case.answer, case.first, case.cache.length, method)
        report = method.report()
        yield case.row(name, budget, logits, {
            "recall": report["recall"], "mass_lost": report["mass_lost"], "mass_lost_p95": None,
            "output_error": None, "mass_coverage": None, "bytes_per_step": report["bytes_moved"] / steps})


def full_row(case):
    config = case.model.config
    moved = 2 * 4 * config.layers * config.kv_heads * config.head_dim * len(case.prompt)
    return case.row("full", 1.0, case.full, {"recall": 1.0, "mass_lost": 0.0, "mass_lost_p95": 0.0,
                                             "output_error": 0.0, "mass_coverage": 1.0, "bytes_per_step": float(moved)})


def run(args):
    wanted = set(args.methods.split(",")) if args.methods else (QUICK if args.quick else None)
    rows = []
    with PrivateDaemon(ram_bytes="8GiB", nvme_bytes="8GiB") as daemon:
        for name in args.models.split(","):
            model = load_model(name)
            for kind in args.documents.split(","):
                say(f"{name}, {kind}")
                case = Case(model, name, kind, args)
                with cairn.Client(daemon.socket, timeout_s=120) as client:
                    rows.append(full_row(case))
                    rows += served_methods(client, case, wanted)
                    rows += retained_methods(client, case, wanted)
                rows += reference_methods(case, wanted)
    return rows


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, prog="tests/e2e/fidelity",
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="smollm2,gemma3,qwen2")
    parser.add_argument("--documents", default="json,lookup,prose")
    parser.add_argument("--methods", help="only these, by name")
    parser.add_argument("--tokens", type=int, default=5000, help="length of the documents, about")
    parser.add_argument("--steps", type=int, default=200, help="tokens of the answer, at most")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="one model, a short document, for CI")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path, help="bytes a step against KL, as SVG")
    parser.add_argument("--keep", type=Path, help="folder to keep prefilled caches in")
    args = parser.parse_args()
    if args.quick:
        args.models, args.documents, args.tokens, args.steps = "smollm2", "json", 1500, 64
    return args


def main():
    args = arguments()
    rows = run(args)
    print(fidelity_report.table(rows))
    broken = fidelity_report.goals(rows)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")
    if args.plot:
        args.plot.write_text(fidelity_report.plot(rows))
    for text in broken:
        print(f"GOAL MISSED: {text}")
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
