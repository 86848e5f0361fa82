"""What the daemon's Retain keeps, as attention methods: dropped for good, or demoted and still found.

The worker sends the queries of the prompt's last 1 % and holds what the daemon says (20 % of the
tokens, a set of its own a KV head). `nacl-drop`: on a fork, the others are dropped, and the daemon
attends over what is left. `nacl-demote`: the worker attends over what it holds, and the daemon finds,
every step, the rows among all others that matter most (with `+rest`, and estimates what is left).
"""

from types import SimpleNamespace

import numpy as np

import reference
from worker.offloaded import RetrievedAttention

NAMES = {"nacl-drop", "nacl-demote", "nacl-demote+rest"}
KEPT = 0.2


class Retained(RetrievedAttention):
    """Measured beside exact attention over all tokens: mass lost and output error."""

    def __init__(self, model, context, cache, share, kept, **options):
        self.kept, self.cache = kept, cache
        self.lost, self.error = [], []
        super().__init__(model, context, cache, share, **options)

    def _found(self, head, step):
        """Positions of a head that the daemon found at a step."""
        return self.found.positions[step, head, :self.found.counts[step, head]]

    def _attend_steps(self, layer, q, now, positions, k, v):
        out = super()._attend_steps(layer, q, now, positions, k, v)
        if self.config.is_local(layer):
            return out
        generated = positions >= self.prompt
        for head in range(self.config.kv_heads):
            group = slice(head * self.config.group, (head + 1) * self.config.group)
            keys = np.concatenate([self.cache.k[layer, head, :self.prompt], k[head][generated]])
            values = np.concatenate([self.cache.v[layer, head, :self.prompt], v[head][generated]])
            scores = (q[:, group] * np.float32(self.config.attention_scale)) @ keys.T
            late = positions[generated] > now[:, None]
            scores[:, :, self.prompt:][np.broadcast_to(late[:, None], scores[:, :, self.prompt:].shape)] = -np.inf
            weights = reference.softmax(scores)
            exact = weights @ values
            for step in range(len(q)):
                mine = np.union1d(self.kept.positions[layer][head], self._found(head, step))
                prompt = weights[step, :, :self.prompt]
                self.lost.extend(prompt.sum(1) - prompt[:, mine].sum(1))
            norm = np.maximum(np.linalg.norm(exact, axis=2), 1e-30)
            self.error.append((np.linalg.norm(out[:, group] - exact, axis=2) / norm).mean())
        return out

    def report(self, steps):
        lost = np.array(self.lost)
        return {"recall": None, "mass_lost": float(lost.mean()), "mass_lost_p95": float(np.quantile(lost, 0.95)),
                "output_error": float(np.mean(self.error)), "mass_coverage": None,
                "bytes_per_step": self.bytes_moved / steps}


class Dropped(Retained):
    """`context` is a fork whose other rows are dropped. The worker holds the sinks and what it generates."""

    def __init__(self, model, context, cache, kept):
        super().__init__(model, _Attending(self, context), cache, 1.0, kept, sinks=4, recent=0)

    def _found(self, head, step):
        return np.empty(0, int)


class _Attending:
    """Attend over all rows that are left, in the shape of a retrieve that found none and has a rest."""

    def __init__(self, method, context):
        self.method, self.context = method, context

    def retrieve(self, layer, q, *, exclude, scale, held_lse, **_):
        config = self.method.config
        found = self.context.attend(layer, q, everything=True, exclude=exclude, scale=scale)
        none = np.empty((len(q), config.kv_heads, 0, config.head_dim), np.float32)
        return SimpleNamespace(k_rows=none, v_rows=none, rest_lse=found.out_lse, rest_out=found.out,
                               counts=np.zeros((len(q), config.kv_heads), np.uint32), bytes=found.bytes)


class Demoted(Retained):
    """The worker holds what Retain kept and what it generates; the daemon looks among the others."""

    def __init__(self, model, context, cache, share, kept, *, rerank, rest):
        super().__init__(model, context, cache, share, kept, sinks=0, recent=0, rest=rest)
        self.options.update(demoted=True, rerank=rerank)

    def _hold(self, cache, layer):
        if self.config.is_local(layer):
            return super()._hold(cache, layer)
        heads = self.kept.positions[layer]
        k, v = (np.stack([rows[layer, head][positions] for head, positions in enumerate(heads)])
                for rows in (cache.k, cache.v))
        return np.zeros(k.shape[1], int), k, v  # positions of the prompt: none hides another


def methods(case, context, share, rerank):
    """(name, budget, attention) one after the other."""
    options = {"scale": case.model.config.attention_scale, "seed": 1}
    with context.fork() as fork:
        kept = fork.retain(case.queries, mode="drop", **options)
        yield "nacl-drop", KEPT, Dropped(case.model, fork, case.cache, kept)
    kept = context.retain(case.queries, **options)
    for rest in (False, True):
        attention = Demoted(case.model, context, case.cache, share, kept, rerank=rerank, rest=rest)
        yield "nacl-demote" + rest * "+rest", KEPT + share, attention
