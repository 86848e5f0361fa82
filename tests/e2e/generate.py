"""Free generation: a model writes a document's records as JSON, with full attention and with cairn.

    tests/e2e/generate [--model qwen2] [--sizes 24:5000,8:2000] [--records N --tokens N] [--seeds 1,2,3,4,5]
        [--share 0.03125] [--schema staff] [--json FILE]

Each seed is another document. Both answers are greedy, after a beginning that names the first field
(`[{"name": "`), since small models otherwise spend themselves on layout. The score is extraction.py's:
IoU over records by name, less for missing and wrong attributes, in points of 100. Exit 1 if cairn is
more than one point below full attention on average.

What may come next is guessed from the answer so far, the gold answer and the document, and checked in one
batch: the tokens are those that the model would choose one by one, sooner.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import cairn
import documents
import extraction
from fidelity import put_chain
from private_daemon import PrivateDaemon
from worker import FullAttention, KvCache, load_model
from worker.offloaded import RetrievedAttention, space_config

BELOW_MAX = 1.0  # points
GUESS = 14       # tokens guessed ahead: with the one known, not above a retrieval's 16 steps
MATCH = 3        # tokens that must agree before a guess


def say(text):
    print(text, file=sys.stderr, flush=True)


def guess(told: list, sources: list) -> list:
    """What may follow `told`: what followed its last tokens before, in itself or in a source."""
    end = told[-MATCH:]
    for pool in (told[:-1], *sources) if len(end) == MATCH else ():
        for at in range(len(pool) - MATCH, -1, -1):
            if pool[at:at + MATCH] == end:
                return pool[at + MATCH:at + MATCH + GUESS]
    return []


class Full:
    """Full attention whose last steps can be taken back."""

    def __init__(self, cache):
        self.cache, self.attention = cache, FullAttention(cache)

    def forget(self, steps):
        self.cache.truncate(self.cache.length - steps)


class Retrieved:
    """Rows from cairn and the rest; the worker's own rows can be taken back."""

    def __init__(self, attention):
        self.attention = attention

    def forget(self, steps):
        if steps:
            self.attention.held = [(positions[:-steps], k[:, :-steps], v[:, :-steps])
                                   for positions, k, v in self.attention.held]


def write(model, begin, prompt_tokens, way, sources, most):
    """The greedy answer's token ids after those of `begin`, until the model stops or `most` are there."""
    stop, told = model.tokenizer.stop_ids, list(begin[:-1])
    following = begin[-1]
    if told:
        model.forward(told, prompt_tokens, way.attention.attend_batch, "none")
    while following not in stop and len(told) < most:
        told.append(following)
        ahead = guess(told, sources)
        logits = model.forward([following, *ahead], prompt_tokens + len(told) - 1,
                               way.attention.attend_batch, "all")
        best = [int(token) for token in logits.argmax(1)]
        right = 0
        while right < len(ahead) and ahead[right] == best[right] and best[right] not in stop:
            right += 1
        way.forget(len(ahead) - right)
        told += ahead[:right]
        following = best[right]
    return told[:most]


def one_document(model, client, seed, records, tokens, args):
    """Rows of one document: full attention's answer and cairn's."""
    document = documents.text2json(seed, tokens, lambda text: len(model.tokenizer.encode(text)),
                                   records=records, schema=args.schema)
    head, question, gold = document.prompt_parts(model.tokenizer)
    prompt = head + question
    cache = KvCache(model.config, len(prompt) + 2 * len(gold))
    begun = time.monotonic()
    model.prefill(prompt, cache)
    say(f"seed {seed}, {records} records: {len(prompt)} tokens read in {time.monotonic() - begun:.0f} s, "
        f"gold answer {len(gold)} tokens")
    space = client.open_space(space_config(model, revision=f"generate {seed} {records}"))
    keys, context = put_chain(space, SimpleNamespace(prompt=prompt, cache=cache))
    begin = model.tokenizer.encode(f'[{{"{next(iter(document.records[0]))}": "')
    rows = []
    with context:
        held = RetrievedAttention(model, context, cache, args.share, rest=True)
        for method, way in (("full", Full(cache)), ("cairn-2b+rest", Retrieved(held))):
            begun = time.monotonic()
            ids = write(model, begin, len(prompt), way, [gold, prompt], len(gold) * 5 // 4 + 16)
            text = model.tokenizer.decode(ids)
            row = {"model": model.config.name, "seed": seed, "tokens": len(prompt), "method": method,
                   "share": 1.0 if method == "full" else args.share, "answer_tokens": len(ids),
                   "seconds": time.monotonic() - begun, **extraction.score(text, document.records),
                   "answer": text}
            say(f"  {method:14} {row['score']:6.2f} points, {row['found']} of {records} found, "
                f"{len(ids)} tokens in {row['seconds']:.0f} s")
            rows.append(row)
    space.delete(keys)
    return rows


def table(rows) -> str:
    lines = ["| seed | records | tokens | method | score | found | extra | missing | wrong | same answer |",
             "|---|---|---|---|---|---|---|---|---|---|"]
    full = {(r["seed"], r["records"]): r["answer"] for r in rows if r["method"] == "full"}
    for r in rows:
        same = "yes" if full[r["seed"], r["records"]] == r["answer"] else "no"
        lines.append(f"| {r['seed']} | {r['records']} | {r['tokens']} | {r['method']} | {r['score']:.2f} | "
                     f"{r['found']} | {r['extra']} | {r['missing_attributes']} | {r['wrong_attributes']} | "
                     f"{same} |")
    return "\n".join(lines)


def means(rows) -> dict:
    scores = {}
    for row in rows:
        scores.setdefault(row["method"], []).append(row["score"])
    return {method: sum(of) / len(of) for method, of in scores.items()}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, prog="tests/e2e/generate",
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="qwen2")
    parser.add_argument("--sizes", default="24:5000,8:2000", help="records:tokens of the documents")
    parser.add_argument("--records", type=int, help="with --tokens: one size alone")
    parser.add_argument("--tokens", type=int)
    parser.add_argument("--seeds", default="1,2,3,4,5")
    parser.add_argument("--schema", default="staff", choices=sorted(documents.words.SCHEMAS))
    parser.add_argument("--share", type=float, default=0.03125)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if (args.records is None) != (args.tokens is None):
        parser.error("--records and --tokens go together")
    args.sizes = [(args.records, args.tokens)] if args.records else \
        [tuple(int(n) for n in size.split(":")) for size in args.sizes.split(",")]
    args.seeds = [int(seed) for seed in args.seeds.split(",")]
    return args


def main():
    args = arguments()
    model, rows = load_model(args.model), []
    with PrivateDaemon(ram_bytes="4GiB", nvme_bytes="4GiB") as daemon:
        for records, tokens in args.sizes:
            for seed in args.seeds:
                with cairn.Client(daemon.socket, timeout_s=120) as client:
                    rows += one_document(model, client, seed, records, tokens, args)
                if args.json:  # what is done is kept, should a long run be stopped
                    args.json.write_text(json.dumps(rows, indent=1) + "\n")
    print(table(rows))
    mean = means(rows)
    below = mean["full"] - mean["cairn-2b+rest"]
    print(f"\nfull {mean['full']:.2f}, cairn {mean['cairn-2b+rest']:.2f}: {below:+.2f} points below "
          f"(at most {BELOW_MAX:g})")
    sys.exit(1 if below > BELOW_MAX else 0)


if __name__ == "__main__":
    main()
