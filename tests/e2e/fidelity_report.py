"""What fidelity.py prints: a table, the goals that were missed, a plot. Pure text from rows."""

import math

SHARE = 0.03125


def table(rows):
    lines = []
    for model, document in dict.fromkeys((r["model"], r["document"]) for r in rows):
        mine = [r for r in rows if (r["model"], r["document"]) == (model, document)]
        lines += ["", f"{model}, {document}, {mine[0]['tokens']} tokens",
                  f"{'method':24}{'budget':>8}{'KL':>10}{'agree':>8}{'dNLL':>9}{'recall':>8}"
                  f"{'lost':>8}{'p95':>8}{'error':>8}{'cover':>8}{'bar':>8}{'off by':>8}"
                  f"{'MB/step':>9}"]
        for r in mine:
            lines.append(f"{r['method']:24}{100 * r['budget']:7.2f}%{r['kl']:10.5f}{r['agreement']:8.3f}"
                         f"{r['dnll']:9.4f}{_number(r['recall'])}{_number(r['mass_lost'])}"
                         f"{_number(r['mass_lost_p95'])}{_number(r['output_error'])}{_number(r['mass_coverage'])}"
                         f"{_number(r.get('mass_bar'))}{_number(r.get('mass_gap'))}"
                         f"{r['bytes_per_step'] / 1e6:9.2f}")
    return "\n".join(lines[1:])


def _number(value):
    return f"{'-':>8}" if value is None else f"{value:8.4f}"


def goals(rows):
    """Sentences on the goals that these rows miss; goals whose rows are absent are not judged."""
    broken = []
    for model, document in dict.fromkeys((r["model"], r["document"]) for r in rows):
        found = {(r["method"], r["budget"]): r for r in rows
                 if (r["model"], r["document"]) == (model, document)}
        where = f"{model}, {document}"
        exact, rest = found.get(("exact-topk", SHARE)), found.get(("cairn-2b+rest", SHARE))
        alone, yakv = found.get(("cairn-2b", SHARE)), found.get(("yakv", SHARE))
        mean, small = found.get(("chunk-mean", SHARE)), found.get(("cairn-2b+rest", 0.01))
        drop, demote = found.get(("nacl-drop", 0.2)), found.get(("nacl-demote", 0.2 + SHARE))
        whole = found.get(("nacl-demote+rest", 0.2 + SHARE))
        judged = [
            (rest, "KL of cairn-2b+rest is at most 0.004", lambda: rest["kl"] <= 0.004),
            (rest, "its agreement is at least 0.97", lambda: rest["agreement"] >= 0.97),
            (rest and exact, "its KL is at most exact top-k's", lambda: rest["kl"] <= exact["kl"]),
            (rest and yakv, "its KL is a twentieth of YAKV's", lambda: 20 * rest["kl"] <= yakv["kl"]),
            (alone and exact, "selection alone is within twice exact top-k's KL",
             lambda: alone["kl"] <= 2 * exact["kl"] + 1e-4),
            (rest and mean, "its KL is below chunk means'", lambda: rest["kl"] < mean["kl"]),
            (small and exact, "1 % with the rest is no worse than exact top-k at 3.125 %",
             lambda: small["kl"] <= exact["kl"]),
            (demote, "KL of nacl-demote is at most 0.015", lambda: demote["kl"] <= 0.015),
            (demote and drop, "dropping costs twenty times its KL", lambda: drop["kl"] >= 20 * demote["kl"]),
            (whole, "KL of nacl-demote+rest is at most 0.004", lambda: whole["kl"] <= 0.004),
        ]
        judged += [(r, f"two error bars of {r['method']} at {100 * r['budget']:g} % cover the mass",
                    lambda r=r: r["mass_coverage"] >= 0.93)
                   for r in found.values() if r["method"].startswith("cairn-")]
        broken += [f"{where}: {text}" for there, text, holds in judged if there and not holds()]
    return broken


COLOURS = ("#1b6ca8", "#c8553d", "#588157", "#8d5a97", "#b08900", "#3d405b", "#e07a5f", "#2a9d8f",
           "#6d597a", "#000000", "#9c6644", "#577590")


def plot(rows):
    """An SVG: bytes a step (log) against KL (log), a colour a method, a mark a document."""
    points = [r for r in rows if r["kl"] > 0 and r["bytes_per_step"] > 0]
    if not points:
        return '<svg xmlns="http://www.w3.org/2000/svg"/>\n'
    names = list(dict.fromkeys(r["method"] for r in points))
    xs = [math.log10(r["bytes_per_step"]) for r in points]
    ys = [math.log10(r["kl"]) for r in points]
    left, right = math.floor(min(xs)), math.ceil(max(xs))
    low, high = math.floor(min(ys)), math.ceil(max(ys))

    def at(x, y):
        return (70 + 520 * (x - left) / max(1, right - left), 440 - 400 * (y - low) / max(1, high - low))
    out = ['<svg xmlns="http://www.w3.org/2000/svg" width="820" height="500" font-family="sans-serif" '
           'font-size="12"><rect width="820" height="500" fill="white"/>']
    for x in range(left, right + 1):
        px = at(x, low)[0]
        out.append(f'<path d="M{px} 40V440" stroke="#ddd"/><text x="{px - 12}" y="458">1e{x}</text>')
    for y in range(low, high + 1):
        py = at(left, y)[1]
        out.append(f'<path d="M70 {py}H590" stroke="#ddd"/><text x="34" y="{py + 4}">1e{y}</text>')
    for r, x, y in zip(points, xs, ys):
        px, py = at(x, y)
        colour = COLOURS[names.index(r["method"]) % len(COLOURS)]
        label = f'{r["model"]}, {r["document"]}, {r["method"]}, {100 * r["budget"]:.2f} %'
        out.append(f'<circle cx="{px:.1f}" cy="{py:.1f}" r="5" fill="{colour}" fill-opacity=".75">'
                   f'<title>{label}</title></circle>')
    for i, name in enumerate(names):
        out.append(f'<circle cx="615" cy="{50 + 20 * i}" r="5" fill="{COLOURS[i % len(COLOURS)]}"/>'
                   f'<text x="628" y="{54 + 20 * i}">{name}</text>')
    out.append('<text x="240" y="485">bytes moved a step</text><text x="16" y="26">KL against full '
               'attention, nats</text></svg>\n')
    return "\n".join(out)
