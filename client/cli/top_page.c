// The page of `cairnctl top`.
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "client/cli/cli.h"
#include "client/cli/top.h"

enum {
        BAR_COLUMNS = 24
};

struct view {
        const struct cairn_cli_sample *from;
        const struct cairn_cli_sample *to;
        struct cairn_cli_page *page;
};

__attribute__((format(printf, 2, 3))) static void add(struct view *view, const char *format, ...)
{
        va_list args;

        if (view->page->count == CAIRN_CLI_TOP_LINES_MAX)
                return;
        va_start(args, format);
        (void)vsnprintf(view->page->lines[view->page->count++], CAIRN_CLI_TOP_COLUMNS + 1, format,
                        args); // cut at the edge
        va_end(args);
}

static double now(const struct view *view, const char *name)
{
        return cairn_cli_sample_get(view->to, name);
}

static double rate(const struct view *view, const char *name)
{
        return cairn_cli_sample_rate(view->from, view->to, name);
}

static void add_tier(struct view *view, const char *tier)
{
        char name[64];
        char used_text[16];
        char limit_text[16];
        char bar[BAR_COLUMNS + 1];
        double used;
        double limit;
        double share;
        double evictions;
        int filled;

        (void)snprintf(name, sizeof(name), "cairn_tier_used_bytes{tier=\"%s\"}", tier);
        used = now(view, name);
        (void)snprintf(name, sizeof(name), "cairn_tier_limit_bytes{tier=\"%s\"}", tier);
        limit = now(view, name);
        (void)snprintf(name, sizeof(name), "cairn_evictions_total{tier=\"%s\"}", tier);
        evictions = rate(view, name);
        (void)snprintf(name, sizeof(name), "cairn_tier_blocks{tier=\"%s\"}", tier);
        share = limit > 0 ? used / limit : 0;
        filled = (int)(share * BAR_COLUMNS + 0.5);
        filled = filled > BAR_COLUMNS ? BAR_COLUMNS : filled;
        memset(bar, '.', BAR_COLUMNS);
        memset(bar, '#', (size_t)filled);
        bar[BAR_COLUMNS] = '\0';
        cairn_cli_bytes(used, used_text);
        cairn_cli_bytes(limit, limit_text);
        add(view, "%-5s [%s] %3.0f %%  %10s of %-10s %9.0f blocks %8.0f evictions/s", tier, bar,
            100 * share, used_text, limit_text, now(view, name), evictions);
}

static void add_traffic(struct view *view)
{
        static const char *const names[] = {"ram", "nvme", "remote", "none"};
        double found[4];
        double all = 0;
        char in[16];
        char out[16];
        char read[16];
        char written[16];

        for (int i = 0; i < 4; i++) {
                char name[64];

                (void)snprintf(name, sizeof(name), "cairn_lookup_blocks_total{tier=\"%s\"}",
                               names[i]);
                found[i] = rate(view, name);
                all += found[i];
        }
        cairn_cli_bytes(rate(view, "cairn_put_bytes_total"), in);
        cairn_cli_bytes(rate(view, "cairn_get_bytes_total"), out);
        cairn_cli_bytes(rate(view, "cairn_nvme_read_bytes_total"), read);
        cairn_cli_bytes(rate(view, "cairn_nvme_write_bytes_total"), written);
        add(view,
            "lookups %8.0f blocks/s, %3.0f %% found (RAM %.0f, NVMe %.0f), prefill saved "
            "%.0f tokens/s",
            all, all > 0 ? 100 * (all - found[3]) / all : 0, found[0], found[1],
            rate(view, "cairn_lookup_tokens_total"));
        add(view, "workers %10s/s out, %10s/s in      disk %10s/s read, %10s/s written", out, in,
            read, written);
        add(view, "retrieval %9.3g tokens/s scanned, %9.3g rows/s fetched",
            rate(view, "cairn_tokens_scanned_total"), rate(view, "cairn_rows_fetched_total"));
}

static void seconds_text(double seconds, char ret_text[16])
{
        if (seconds < 0)
                (void)snprintf(ret_text, 16, "-");
        else if (seconds < 1e-3)
                (void)snprintf(ret_text, 16, "%.0f us", 1e6 * seconds);
        else if (seconds < 1)
                (void)snprintf(ret_text, 16, "%.1f ms", 1e3 * seconds);
        else
                (void)snprintf(ret_text, 16, "%.2f s", seconds);
}

// Kinds that were asked for since the daemon started.
static void add_kinds(struct view *view)
{
        static const char prefix[] = "cairn_request_duration_seconds_count{kind=\"";

        add(view, "%-18s %10s %10s %10s %10s", "request", "a second", "p50", "p99", "failed/s");
        for (size_t i = 0; i < view->to->count; i++) {
                const char *name = view->to->metrics[i].name;
                char kind[48];
                char failed[96];
                char middle[16];
                char high[16];

                if (strncmp(name, prefix, sizeof(prefix) - 1) != 0 ||
                    sscanf(name + sizeof(prefix) - 1, "%47[A-Za-z]", kind) != 1)
                        continue;
                seconds_text(cairn_cli_sample_quantile(view->from, view->to, kind, 0.5), middle);
                seconds_text(cairn_cli_sample_quantile(view->from, view->to, kind, 0.99), high);
                (void)snprintf(failed, sizeof(failed), "cairn_requests_failed_total{kind=\"%s\"}",
                               kind);
                add(view, "%-18s %10.0f %10s %10s %10.0f", kind, rate(view, name), middle, high,
                    rate(view, failed));
        }
}

void cairn_cli_top_page(const char *socket, const struct cairn_cli_sample *from,
                        const struct cairn_cli_sample *to, struct cairn_cli_page *ret_page)
{
        struct view view = {from, to, ret_page};

        ret_page->count = 0;
        add(&view, "cairnd on %s, up %.0f s%s%s", socket, now(&view, "cairn_uptime_seconds"),
            now(&view, "cairn_draining") > 0 ? ", DRAINING" : "",
            now(&view, "cairn_nvme_failed") > 0 ? ", DISK FAILED" : "");
        add(&view,
            "%.0f connections, %.0f leases, %.0f contexts, %.0f arenas; under way: %.0f "
            "requests, %.0f disk, %.0f scorers",
            now(&view, "cairn_connections"), now(&view, "cairn_leases"),
            now(&view, "cairn_contexts"), now(&view, "cairn_arenas"),
            now(&view, "cairn_requests_inflight"), now(&view, "cairn_io_inflight"),
            now(&view, "cairn_scorer_pending"));
        add(&view, "%s", "");
        add_tier(&view, "ram");
        add_tier(&view, "nvme");
        add(&view,
            "%.0f blocks of %.0f spaces, %.0f not yet on disk, %.0f puts wait for RAM, %.0f "
            "corrupt so far",
            now(&view, "cairn_blocks"), now(&view, "cairn_spaces"),
            now(&view, "cairn_blocks_dirty"), now(&view, "cairn_puts_waiting"),
            now(&view, "cairn_blocks_corrupt_total"));
        add(&view, "%s", "");
        add_traffic(&view);
        add(&view, "%s", "");
        add_kinds(&view);
}
