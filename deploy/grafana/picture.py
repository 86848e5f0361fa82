#!/usr/bin/env python3
"""Draws the dashboard's panels as an SVG, from a Prometheus that scrapes a cairnd:

deploy/grafana/picture.py http://127.0.0.1:9090 OUT.svg [--last SECONDS] [--step SECONDS]

Its queries are those of cairn.json. Standard library only.
"""
import argparse
import json
import math
import time
import urllib.parse
import urllib.request
from pathlib import Path
from xml.sax.saxutils import escape

COLUMN, ROW, MARGIN = 50, 24, 8
COLORS = ("#3274d9", "#56a64b", "#e0752d", "#a352cc", "#e02f44", "#37872d", "#c4162a", "#1f60c4", "#fade2a", "#8f3bb8")


def ask(base, expr, begin, end, step):
    """[(labels, [(time, value)])]"""
    expr = expr.replace("$__rate_interval", f"{max(4 * step, 4)}s").replace("$instance", ".*")
    query = urllib.parse.urlencode({"query": expr, "start": begin, "end": end, "step": step})
    with urllib.request.urlopen(f"{base}/api/v1/query_range?{query}", timeout=30) as reply:
        result = json.load(reply)["data"]["result"]
    return [(one["metric"], [(float(t), float(v)) for t, v in one["values"]]) for one in result]


def legend(template, labels):
    for name, value in labels.items():
        template = template.replace("{{" + name + "}}", value)
    return template


def number(value, unit):
    if unit == "percentunit":
        return f"{100 * value:.1f} %"
    if unit == "s":
        return f"{value * 1e6:.0f} us" if value < 1e-3 else f"{value * 1e3:.1f} ms" if value < 1 else f"{value:.2f} s"
    base, names = (1024, ("", "Ki", "Mi", "Gi", "Ti")) if unit in ("bytes", "Bps") else (1000, ("", "k", "M", "G", "T"))
    at = 0
    while abs(value) >= base and at < 4:
        value, at = value / base, at + 1
    return f"{value:.3g} {names[at]}{ {'bytes': 'B', 'Bps': 'B/s'}.get(unit, '')}".strip()


def draw_panel(panel, series, begin, end):
    grid, unit = panel["gridPos"], panel["fieldConfig"]["defaults"]["unit"]
    x, y, w, h = grid["x"] * COLUMN, grid["y"] * ROW, grid["w"] * COLUMN - MARGIN, grid["h"] * ROW - MARGIN
    out = [f'<g transform="translate({x},{y})"><rect width="{w}" height="{h}" rx="3" fill="#fff" stroke="#d8d9da"/>',
           f'<text x="8" y="16" font-weight="bold">{escape(panel["title"])}</text>']
    points = [v for _, values in series for _, v in values if math.isfinite(v)]
    if panel["type"] == "stat":
        last = [values[-1][1] for _, values in series if values and math.isfinite(values[-1][1])]
        text = number(last[-1], unit) if last else "no data"
        out.append(f'<text x="{w / 2}" y="{h / 2 + 16}" font-size="26" text-anchor="middle" fill="#3274d9">{escape(text)}</text>')
    elif not points:
        out.append(f'<text x="{w / 2}" y="{h / 2}" text-anchor="middle" fill="#8e8e8e">no data</text>')
    else:
        top = max(points) or 1
        left, bottom, width, height = 64, h - 34, w - 74, h - 60
        for part in (0, 0.5, 1):
            level = bottom - height * part
            out.append(f'<path d="M{left} {level}h{width}" stroke="#eee"/><text x="{left - 4}" y="{level + 4}" text-anchor="end" '
                       f'fill="#8e8e8e">{escape(number(top * part, unit))}</text>')
        at = left
        for i, (name, values) in enumerate(series[:10]):
            color = COLORS[i % len(COLORS)]
            line = " ".join(f"{left + width * (t - begin) / (end - begin):.1f},{bottom - height * v / top:.1f}"
                            for t, v in values if math.isfinite(v))
            out.append(f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="1.5"/>')
            if at < w - 60:
                out.append(f'<rect x="{at}" y="{h - 18}" width="8" height="8" fill="{color}"/><text x="{at + 12}" y="{h - 10}">{escape(name)}</text>')
            at += 24 + 7 * len(name)
    out.append("</g>")
    return out


def draw(base, last, step, ask=ask):
    end = time.time()
    begin = end - last
    panels = json.loads((Path(__file__).parent / "cairn.json").read_text())["panels"]
    bottom = max(p["gridPos"]["y"] + p["gridPos"]["h"] for p in panels)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{24 * COLUMN}" height="{bottom * ROW}" font-family="sans-serif" font-size="11">',
           '<rect width="100%" height="100%" fill="#f4f5f5"/>']
    for panel in panels:
        if panel["type"] == "row":
            out.append(f'<text x="4" y="{panel["gridPos"]["y"] * ROW + 17}" font-size="14">{escape(panel["title"])}</text>')
            continue
        series = [(legend(target["legendFormat"], labels), values)
                  for target in panel["targets"] for labels, values in ask(base, target["expr"], begin, end, step)]
        out += draw_panel(panel, series, begin, end)
    return "\n".join([*out, "</svg>", ""])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prometheus")
    parser.add_argument("out")
    parser.add_argument("--last", type=float, default=3600)
    parser.add_argument("--step", type=int, default=15)
    options = parser.parse_args()
    Path(options.out).write_text(draw(options.prometheus.rstrip("/"), options.last, options.step))
