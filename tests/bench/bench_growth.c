// growth: how the time of a select grows with the context, from a few thousand tokens to millions,
// and how far that is from a straight line. Every size goes over the same bytes of DRAM.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/bench/passes.h"

enum {
        SIZES_MAX = 16,
        GROWTH_ROUNDS = 5
};

struct point {
        double tokens;
        double us;      // of one select, median
        double best_us; // of the quickest round
};

// t = a + b n.
struct line {
        double a;
        double b;
};

// Cuts the same blocks into contexts of so many tokens.
static void reshape(struct cairn_bench_keys *s, uint32_t tokens, double share)
{
        uint32_t blocks = s->blocks * s->contexts;

        s->tokens = tokens;
        s->blocks = tokens / s->layout.shape.block_tokens;
        s->contexts = blocks / s->blocks;
        s->k = (uint32_t)ceil(share * tokens);
        for (uint32_t b = 0; b < blocks; b++)
                s->pieces[b].position = b % s->blocks * s->layout.shape.block_tokens;
}

// The line that makes the sum of squared relative deviations least.
static struct line fit(const struct point *points, int count, bool best)
{
        double w = 0, x = 0, y = 0, xx = 0, xy = 0, det;

        for (int i = 0; i < count; i++) {
                double t = best ? points[i].best_us : points[i].us, weight = 1 / (t * t);

                w += weight;
                x += weight * points[i].tokens;
                y += weight * t;
                xx += weight * points[i].tokens * points[i].tokens;
                xy += weight * points[i].tokens * t;
        }
        det = w * xx - x * x;
        return (struct line){(y * xx - x * xy) / det, (w * xy - x * y) / det};
}

// The largest of measured over fitted and fitted over measured.
static double worst(const struct point *points, int count, bool best)
{
        struct line line = fit(points, count, best);
        double most = 1;

        for (int i = 0; i < count; i++) {
                double fitted = line.a + line.b * points[i].tokens;
                double ratio = (best ? points[i].best_us : points[i].us) / fitted;

                most = fmax(most, fmax(ratio, 1 / ratio));
        }
        return most;
}

// ---- The plot ----

enum {
        WIDTH = 640,
        HEIGHT = 420,
        MARGIN = 60
};

struct frame {
        double x0, x1, y0, y1; // log2 of what the edges are
};

static double at_x(const struct frame *f, double tokens)
{
        return MARGIN + (log2(tokens) - f->x0) / (f->x1 - f->x0) * (WIDTH - 2 * MARGIN);
}

static double at_y(const struct frame *f, double us)
{
        return HEIGHT - MARGIN - (log2(us) - f->y0) / (f->y1 - f->y0) * (HEIGHT - 2 * MARGIN);
}

static int plot(const char *path, const struct point *points, int count)
{
        struct line line = fit(points, count, false);
        struct frame f = {log2(points[0].tokens), log2(points[count - 1].tokens),
                          log2(points[0].us) - 0.5, log2(points[count - 1].us) + 0.5};
        FILE *file = fopen(path, "w");

        if (!file) {
                perror(path);
                return -1;
        }
        fprintf(
            file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
            "font-family=\"sans-serif\" font-size=\"12\">\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n"
            "<text x=\"%d\" y=\"24\" text-anchor=\"middle\">Time of one select (us) by tokens of "
            "the context; line: %.3g us + %.3g ns a token</text>\n<polyline fill=\"none\" "
            "stroke=\"#888\" points=\"",
            WIDTH, HEIGHT, WIDTH / 2, line.a, 1e3 * line.b);
        for (double x = f.x0; x <= f.x1 + 0.01; x += 0.1)
                fprintf(file, "%.1f,%.1f ", at_x(&f, exp2(x)),
                        at_y(&f, fmax(line.a + line.b * exp2(x), exp2(f.y0))));
        fputs("\"/>\n", file);
        for (int i = 0; i < count; i++) {
                double x = at_x(&f, points[i].tokens), y = at_y(&f, points[i].us);

                fprintf(file,
                        "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"#0a6\"/>\n"
                        "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%.4g</text>\n"
                        "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.0fK</text>\n",
                        x, y, x - 6, y - 6, points[i].us, x, HEIGHT - MARGIN + 20,
                        points[i].tokens / 1024);
        }
        fputs("</svg>\n", file);
        if (fclose(file) != 0) {
                perror(path);
                return -1;
        }
        return 0;
}

// ---- The case ----

static void report_of(const struct cairn_bench_keys *s, const struct point *points, int count,
                      struct cairn_bench_report *report)
{
        struct line line = fit(points, count, false);
        const struct point *last = &points[count - 1];

        cairn_bench_keys_params(s, report);
        (void)snprintf(report->unit, sizeof(report->unit), "us");
        (void)snprintf(report->baseline_name, sizeof(report->baseline_name),
                       "the fitted line; ratio is the worst deviation");
        report->value = last->us;
        report->baseline = line.a + line.b * last->tokens;
        report->ratio = worst(points, count, false);
        cairn_bench_extra(report, "best_rounds_ratio", worst(points, count, true));
        cairn_bench_extra(report, "line_us", line.a);
        cairn_bench_extra(report, "line_ns_a_token", 1e3 * line.b);
        for (int i = 0; i < count; i++) {
                char name[CAIRN_BENCH_TEXT_MAX];

                (void)snprintf(name, sizeof(name), "us_%.0fk", points[i].tokens / 1024);
                cairn_bench_extra(report, name, points[i].us);
        }
}

int cairn_bench_growth(int argc, char **argv, struct cairn_bench_report *ret_report)
{
        uint64_t least = cairn_bench_flag_u64(argc, argv, "min-tokens", 8192);
        uint64_t most = cairn_bench_flag_u64(argc, argv, "tokens", 4 << 20);
        double share = cairn_bench_flag_double(argc, argv, "share", 0.015625);
        const char *path = cairn_bench_flag_text(argc, argv, "plot", NULL);
        struct point points[SIZES_MAX];
        double times[SIZES_MAX][GROWTH_ROUNDS];
        struct cairn_bench_keys s;
        char size[32], *with_size[] = {"growth", "--warm", "--tokens", size};
        int count = 0, status = 0;

        (void)snprintf(size, sizeof(size), "%llu", (unsigned long long)most);
        if (cairn_bench_keys_init(&s, 4, with_size, 1) < 0)
                return -1;
        if (least < s.layout.shape.block_tokens || 2 * least > most || share <= 0 ||
            share * (double)most > CAIRN_ROWS_MAX) {
                fprintf(stderr, "cairn-bench: growth: a size or --share is out of range\n");
                return -1;
        }
        cairn_bench_keys_fill(&s);
        // Round by round over all sizes, so that a busy minute falls on each of them.
        for (int round = 0; round < GROWTH_ROUNDS; round++) {
                count = 0;
                for (uint64_t n = least;
                     n <= s.blocks * (uint64_t)s.contexts * 256 && n <= most && count < SIZES_MAX;
                     n *= 2) {
                        reshape(&s, (uint32_t)n, share);
                        times[count][round] =
                            1e6 * cairn_bench_pass_run(&s, cairn_bench_pass_select, 0, 1) /
                            s.contexts;
                        points[count++].tokens = (double)n;
                }
        }
        for (int i = 0; i < count; i++) {
                points[i].us = cairn_bench_quantile(times[i], GROWTH_ROUNDS, 0.5);
                points[i].best_us = times[i][0]; // sorted by now
        }
        report_of(&s, points, count, ret_report);
        if (path)
                status = plot(path, points, count);
        cairn_bench_keys_finish(&s);
        return status;
}
