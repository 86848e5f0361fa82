// The picture of a plan.
#include <math.h>

#include "client/cli/plan.h"

enum {
        WIDTH = 720,
        HEIGHT = 460,
        LEFT = 60,
        RIGHT = 700,
        TOP = 30,
        BOTTOM = 410,
        POINTS = CAIRN_PLAN_CURVE_POINTS,
};

// Shares lie at equal factors: 1/1024 on the left, 1 on the right.
static double x_of(double share)
{
        double x = 1 + log2(share) / 10;

        return LEFT + (x < 0 ? 0 : x > 1 ? 1 : x) * (RIGHT - LEFT);
}

static double y_of(double mass)
{
        return BOTTOM - mass * (BOTTOM - TOP);
}

static void line(FILE *to, const struct cairn_plan *plan, const double mass[POINTS],
                 const char *style, const char *title)
{
        fprintf(to, "<polyline fill=\"none\" %s points=\"", style);
        for (int i = 0; i < POINTS; i++)
                fprintf(to, "%s%.1f,%.1f", i ? " " : "", x_of(plan->curve[i].share), y_of(mass[i]));
        fprintf(to, "\"><title>%s</title></polyline>\n", title);
}

static void grid(FILE *to)
{
        static const double shares[] = {0.001, 0.01, 0.1, 1};

        for (int i = 0; i < 4; i++)
                fprintf(to,
                        "<path d=\"M%.1f %dV%d\" stroke=\"#ddd\"/><text x=\"%.1f\" y=\"%d\">%g "
                        "%%</text>\n",
                        x_of(shares[i]), TOP, BOTTOM, x_of(shares[i]) - 14, BOTTOM + 18,
                        100 * shares[i]);
        for (int i = 0; i <= 5; i++)
                fprintf(to,
                        "<path d=\"M%d %.1fH%d\" stroke=\"#ddd\"/><text x=\"14\" y=\"%.1f\">%d "
                        "%%</text>\n",
                        LEFT, y_of(i / 5.0), RIGHT, y_of(i / 5.0) + 4, 20 * i);
}

static void layers(FILE *to, const struct cairn_plan *plan)
{
        for (uint32_t layer = 0; layer < plan->layers; layer++) {
                double mass[POINTS] = {0};
                char title[32];

                for (uint32_t head = 0; head < plan->kv_heads; head++)
                        for (int i = 0; i < POINTS; i++)
                                mass[i] +=
                                    (double)plan->head_mass
                                        [((uint64_t)layer * plan->kv_heads + head) * POINTS + i] /
                                    plan->kv_heads;
                (void)snprintf(title, sizeof(title), "layer %u", layer);
                line(to, plan, mass, "stroke=\"#1b6ca8\" stroke-opacity=\".25\"", title);
        }
}

void cairn_cli_plan_draw(FILE *to, const struct cairn_plan *plan, double target_mass)
{
        double mean[POINTS];
        double lowest[POINTS];

        for (int i = 0; i < POINTS; i++) {
                mean[i] = plan->curve[i].mass;
                lowest[i] = plan->curve[i].mass_lowest;
        }
        fprintf(to,
                "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
                "font-family=\"sans-serif\" font-size=\"12\">\n"
                "<rect width=\"%d\" height=\"%d\" fill=\"white\"/>\n",
                WIDTH, HEIGHT, WIDTH, HEIGHT);
        grid(to);
        layers(to, plan);
        line(to, plan, mean, "stroke=\"#1b6ca8\" stroke-width=\"3\"", "all heads, on average");
        line(to, plan, lowest, "stroke=\"#c8553d\" stroke-width=\"2\"",
             "the head that holds least");
        fprintf(to, "<path d=\"M%d %.1fH%d\" stroke=\"#588157\" stroke-dasharray=\"6 4\"/>\n", LEFT,
                y_of(target_mass), RIGHT);
        fprintf(to, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"5\" fill=\"#588157\"/>\n",
                x_of(plan->needed.share), y_of(plan->needed.mass));
        fprintf(to,
                "<text x=\"%d\" y=\"%d\">share of the tokens kept, of %llu; thin: a layer, red: "
                "the head that holds least</text>\n"
                "<text x=\"%d\" y=\"20\">attention mass held: %.4g %% by %.3g %% of the "
                "tokens</text>\n</svg>\n",
                LEFT + 80, BOTTOM + 38, (unsigned long long)plan->tokens, LEFT,
                100 * plan->needed.mass, 100 * plan->needed.share);
}
