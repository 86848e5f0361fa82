#!/usr/bin/env python3
"""Makes cairn.json, the Grafana dashboard: deploy/grafana/make_dashboard.py > deploy/grafana/cairn.json"""
import json
import sys

BY = 'instance=~"$instance"'
RATE = "$__rate_interval"

# Row: title, panels. Panel: title, unit, what it tells, [(query, legend), ...], and for one number its kind.
ROWS = [
    ("At a glance", [
        ("Up", "bool_on_off", "1: the daemon answers.", [(f"cairn_build_info{{{BY}}}", "{{instance}} {{version}}")], "stat"),
        ("Hit ratio", "percentunit", "Blocks found by lookups, of those asked for.",
         [(f'sum(rate(cairn_lookup_blocks_total{{{BY},tier!="none"}}[{RATE}])) / sum(rate(cairn_lookup_blocks_total{{{BY}}}[{RATE}]))', "hits")], "stat"),
        ("Prefill saved", "short", "Tokens a second that need not be computed again.",
         [(f"sum(rate(cairn_lookup_tokens_total{{{BY}}}[{RATE}]))", "tokens/s")], "stat"),
        ("Prefill bytes saved", "Bps", "K and V a second that need not be made again.",
         [(f"sum(rate(cairn_prefill_saved_bytes_total{{{BY}}}[{RATE}]))", "bytes/s")], "stat"),
        ("Blocks", "short", "Blocks stored.", [(f"sum(cairn_blocks{{{BY}}})", "blocks")], "stat"),
        ("Alarms", "short", "Disk failed, corrupt blocks, I/O errors: 0 is good.",
         [(f"sum(cairn_nvme_failed{{{BY}}}) + sum(increase(cairn_blocks_corrupt_total{{{BY}}}[1h])) + sum(increase(cairn_io_errors_total{{{BY}}}[1h]))", "alarms")], "stat"),
    ]),
    ("Tiers", [
        ("Bytes used", "bytes", "Against the configured bound.",
         [(f"cairn_tier_used_bytes{{{BY}}}", "{{tier}} used"), (f"cairn_tier_limit_bytes{{{BY}}}", "{{tier}} bound")]),
        ("Blocks", "short", "By tier, and those not yet on disk.",
         [(f"cairn_tier_blocks{{{BY}}}", "{{tier}}"), (f"cairn_blocks_dirty{{{BY}}}", "not yet on NVMe")]),
        ("Evictions", "ops", "Blocks that made room.", [(f"rate(cairn_evictions_total{{{BY}}}[{RATE}])", "{{tier}}")]),
        ("Bytes by space", "bytes", "RAM and NVMe of each space.",
         [(f"cairn_space_ram_bytes{{{BY}}}", "{{model}} ({{space}}) RAM"), (f"cairn_space_nvme_bytes{{{BY}}}", "{{model}} ({{space}}) NVMe")]),
    ]),
    ("Hits and misses", [
        ("Lookups", "ops", "Blocks asked for, by the tier that had them; none: a miss.",
         [(f"sum by (tier) (rate(cairn_lookup_blocks_total{{{BY}}}[{RATE}]))", "{{tier}}")]),
        ("Get by status", "ops", "Anything but CAIRN_OK is a miss, and its reason.",
         [(f"sum by (status) (rate(cairn_get_blocks_total{{{BY}}}[{RATE}]))", "{{status}}")]),
        ("Put by status", "ops", "CAIRN_EEXIST: the block was there already.",
         [(f"sum by (status) (rate(cairn_put_blocks_total{{{BY}}}[{RATE}]))", "{{status}}")]),
        ("Bytes moved", "Bps", "Blocks to and from workers, and to and from the disk.",
         [(f"rate(cairn_get_bytes_total{{{BY}}}[{RATE}])", "to workers"), (f"rate(cairn_put_bytes_total{{{BY}}}[{RATE}])", "from workers"),
          (f"rate(cairn_nvme_read_bytes_total{{{BY}}}[{RATE}])", "disk read"), (f"rate(cairn_nvme_write_bytes_total{{{BY}}}[{RATE}])", "disk written")]),
    ]),
    ("Misses by reason", [
        ("Lookup misses", "ops", "absent: never put, or long gone; prefix: behind one that was missing.",
         [(f'sum by (reason) (rate(cairn_misses_total{{{BY},request="lookup"}}[{RATE}])) > 0 or sum by (reason) (rate(cairn_misses_total{{{BY},request="lookup",reason="absent"}}[{RATE}]))', "{{reason}}")]),
        ("Get misses", "ops", "What was asked for and not given, by reason.",
         [(f'sum by (reason) (rate(cairn_misses_total{{{BY},request="get"}}[{RATE}])) > 0 or sum by (reason) (rate(cairn_misses_total{{{BY},request="get",reason="absent"}}[{RATE}]))', "{{reason}}")]),
    ]),
    ("Tenants", [
        ("RAM by tenant", "bytes", "And the quotas, where there are some.",
         [(f'cairn_tenant_used_bytes{{{BY},tier="ram"}}', "{{tenant}}"), (f'cairn_tenant_quota_bytes{{{BY},tier="ram"}}', "{{tenant}} quota")]),
        ("NVMe by tenant", "bytes", "And the quotas, where there are some.",
         [(f'cairn_tenant_used_bytes{{{BY},tier="nvme"}}', "{{tenant}}"), (f'cairn_tenant_quota_bytes{{{BY},tier="nvme"}}', "{{tenant}} quota")]),
        ("Evicted", "ops", "Blocks a second, by tenant and reason.",
         [(f"rate(cairn_tenant_evicted_blocks_total{{{BY}}}[{RATE}])", "{{tenant}} {{reason}}")]),
        ("Refused", "ops", "Puts above a quota; blocks that were not worth the disk.",
         [(f"rate(cairn_tenant_refused_blocks_total{{{BY}}}[{RATE}])", "{{tenant}} {{reason}}")]),
    ]),
    ("Latencies", [
        ("p50 by kind", "s", "From the whole request to its answer.",
         [(f"histogram_quantile(0.5, sum by (kind, le) (rate(cairn_request_duration_seconds_bucket{{{BY}}}[{RATE}])))", "{{kind}}")]),
        ("p99 by kind", "s", "From the whole request to its answer.",
         [(f"histogram_quantile(0.99, sum by (kind, le) (rate(cairn_request_duration_seconds_bucket{{{BY}}}[{RATE}])))", "{{kind}}")]),
        ("Requests", "reqps", "Answered, by kind.", [(f"sum by (kind) (rate(cairn_requests_total{{{BY}}}[{RATE}])) > 0", "{{kind}}")]),
        ("Failed requests", "reqps", "Answered with an error as a whole, by kind.",
         [(f"sum by (kind) (rate(cairn_requests_failed_total{{{BY}}}[{RATE}]))", "{{kind}}")]),
    ]),
    ("Retrieval", [
        ("Tokens scanned", "short", "A second; a token counts once a layer and KV head.",
         [(f"rate(cairn_tokens_scanned_total{{{BY}}}[{RATE}])", "{{instance}}")]),
        ("Rows fetched", "short", "A second.", [(f"rate(cairn_rows_fetched_total{{{BY}}}[{RATE}])", "{{instance}}")]),
        ("Mass held", "percentunit", "Of attention, by what was selected: on average, and the share of query heads below 90 %.",
         [(f"sum(rate(cairn_retrieve_mass_held_sum{{{BY}}}[{RATE}])) / sum(rate(cairn_retrieve_mass_held_count{{{BY}}}[{RATE}]))", "average"),
          (f'sum(rate(cairn_retrieve_mass_held_bucket{{{BY},le="0.9"}}[{RATE}])) / sum(rate(cairn_retrieve_mass_held_count{{{BY}}}[{RATE}]))', "below 90 %")]),
        ("Contexts", "short", "Open, and what was appended to them.", [(f"cairn_contexts{{{BY}}}", "contexts")]),
        ("Context memory", "bytes", "Appended to open contexts.", [(f"cairn_context_bytes{{{BY}}}", "bytes")]),
    ]),
    ("Queues", [
        ("Under way", "short", "Requests, disk operations, work for scorers, puts that wait for RAM.",
         [(f"cairn_requests_inflight{{{BY}}}", "requests"), (f"cairn_io_inflight{{{BY}}}", "disk"),
          (f"cairn_scorer_pending{{{BY}}}", "scorers"), (f"cairn_puts_waiting{{{BY}}}", "waiting puts"),
          (f"cairn_writes_queued{{{BY}}}", "to be written"), (f"cairn_commits_pending{{{BY}}}", "commits")]),
        ("Connections and leases", "short", "Open ones.",
         [(f"cairn_connections{{{BY}}}", "connections"), (f"cairn_leases{{{BY}}}", "leases"), (f"cairn_arenas{{{BY}}}", "arenas")]),
        ("Request memory", "bytes", "Of requests under way and replies not yet sent.", [(f"cairn_requests_bytes{{{BY}}}", "bytes")]),
        ("Refused", "ops", "Connections, protocol errors, descriptors, time-outs.",
         [(f"rate(cairn_connections_refused_total{{{BY}}}[{RATE}])", "connections"), (f"rate(cairn_protocol_errors_total{{{BY}}}[{RATE}])", "protocol errors"),
          (f"rate(cairn_descriptors_refused_total{{{BY}}}[{RATE}])", "descriptors"), (f"rate(cairn_connections_timed_out_total{{{BY}}}[{RATE}])", "timed out")]),
    ]),
]
COLUMNS = 24
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


def make_panel(number, panel, x, y, width):
    title, unit, description, queries = panel[:4]
    kind = panel[4] if len(panel) > 4 else "timeseries"
    return {
        "id": number, "type": kind, "title": title, "description": description, "datasource": DATASOURCE,
        "gridPos": {"x": x, "y": y, "w": width, "h": 4 if kind == "stat" else 8},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "targets": [{"refId": chr(ord("A") + i), "expr": expr, "legendFormat": legend, "datasource": DATASOURCE}
                    for i, (expr, legend) in enumerate(queries)],
    }


def make_panels():
    panels, y = [], 0
    for title, row in ROWS:
        panels.append({"id": len(panels) + 1, "type": "row", "title": title, "collapsed": False, "panels": [],
                       "gridPos": {"x": 0, "y": y, "w": COLUMNS, "h": 1}})
        y += 1
        width = COLUMNS // len(row)
        for i, panel in enumerate(row):
            panels.append(make_panel(len(panels) + 1, panel, i * width, y, width))
        y += panels[-1]["gridPos"]["h"]
    return panels


def make_dashboard():
    return {
        "uid": "cairn", "title": "cairn", "tags": ["cairn"], "schemaVersion": 37, "version": 1, "editable": True,
        "refresh": "10s", "time": {"from": "now-1h", "to": "now"}, "timezone": "browser",
        "templating": {"list": [
            {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
            {"name": "instance", "label": "Instance", "type": "query", "datasource": DATASOURCE, "multi": True,
             "includeAll": True, "allValue": ".*", "query": "label_values(cairn_build_info, instance)", "refresh": 2},
        ]},
        "annotations": {"list": [{"name": "Restarts", "enable": True, "datasource": DATASOURCE, "iconColor": "orange",
                                  "expr": f"resets(cairn_uptime_seconds{{{BY}}}[1m]) > 0"}]},
        "panels": make_panels(),
    }


if __name__ == "__main__":
    json.dump(make_dashboard(), sys.stdout, indent=1)
    print()
