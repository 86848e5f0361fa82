// cairnctl plan: what budgets would hold of a stored prompt, by the queries that a worker saved.
#include "client/cli/plan.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/cli.h"

// The file that cairn.save_proxies writes, little endian:
//
//   offset  size  what
//   0       8     "CRNPROX1"
//   8       4     layers (all of the space)
//   12      4     proxies
//   16      4     query heads
//   20      4     k_dim
//   24      4     keys
//   28      4     0
//   32      4     f32: scale of q.k; 0: 1 / sqrt(k_dim)
//   36      4     0
//   40      32    fingerprint of the space
//   72      32 n  the prompt's keys, a chain
//   ..            f32 [layer][proxy][query head][k_dim]
struct head {
        char magic[8];
        uint32_t layers;
        uint32_t proxies;
        uint32_t query_heads;
        uint32_t k_dim;
        uint32_t keys;
        uint32_t zero;
        float scale;
        uint32_t zero_too;
        struct cairn_key fingerprint;
};
_Static_assert(sizeof(struct head) == 72, "as in the table");

enum {
        FILE_BYTES_MAX = 1 << 30
};

struct saved {
        struct head head;
        uint8_t *bytes; // owned: what follows the head
        const struct cairn_key *keys;
        const float *queries;
};

static uint64_t body_bytes(const struct head *head)
{
        return 32ull * head->keys + (uint64_t)head->layers * head->proxies * head->query_heads *
                                        head->k_dim * sizeof(float);
}

// Numbers that a daemon may take at all, so that sizes cannot overflow.
static bool plausible(const struct head *head)
{
        return memcmp(head->magic, "CRNPROX1", 8) == 0 && head->layers - 1u < 256 &&
               head->proxies - 1u < 65536 && head->query_heads - 1u < 1024 &&
               head->k_dim - 1u < 1024 && head->keys - 1u < 1u << 20 && head->zero == 0 &&
               head->zero_too == 0 && body_bytes(head) <= FILE_BYTES_MAX;
}

// False: said why.
static bool read_file(const char *path, struct saved *ret_saved)
{
        struct saved saved = {0};
        FILE *file = fopen(path, "rb");
        bool good;

        if (!file) {
                fprintf(stderr, "cairnctl plan: %s: %s\n", path, strerror(errno));
                return false;
        }
        good = fread(&saved.head, sizeof(saved.head), 1, file) == 1 && plausible(&saved.head);
        if (good) {
                size_t bytes = body_bytes(&saved.head);

                saved.bytes = malloc(bytes);
                good = saved.bytes && fread(saved.bytes, bytes, 1, file) == 1 && fgetc(file) == EOF;
        }
        fclose(file);
        if (!good) {
                free(saved.bytes);
                fprintf(stderr,
                        "cairnctl plan: %s is no whole file of cairn.save_proxies; let the worker "
                        "write it again\n",
                        path);
                return false;
        }
        saved.keys = (const struct cairn_key *)(const void *)saved.bytes;
        saved.queries = (const float *)(const void *)(saved.bytes + 32ull * saved.head.keys);
        *ret_saved = saved;
        return true;
}

struct search {
        struct cairn_key fingerprint;
        struct cairn_space_config config;
        bool found;
};

static void on_space(void *arg, const struct cairn_space_info *info)
{
        struct search *search = arg;

        if (memcmp(&info->fingerprint, &search->fingerprint, sizeof(info->fingerprint)) != 0)
                return;
        search->config = info->config;
        search->found = true;
}

// Opens the chain that the file names. An exit code.
static int open_chain(struct cairn_cli *cli, const struct saved *saved,
                      struct cairn_context *ret_context)
{
        struct search search = {.fingerprint = saved->head.fingerprint};
        uint32_t space;
        int status = cairn_list_spaces(cli->client, NULL, on_space, &search);

        if (status != CAIRN_OK)
                return cairn_cli_fail(cli, status);
        if (!search.found || search.config.layers != saved->head.layers ||
            search.config.k_dim != saved->head.k_dim) {
                fputs("cairnctl plan: the daemon has no such space; is it the one that the "
                      "worker used?\n",
                      stderr);
                return CAIRN_CLI_FAILED;
        }
        status = cairn_client_open_space(cli->client, &search.config, &space);
        if (status == CAIRN_OK)
                status = cairn_open_context(cli->client, NULL, space, saved->keys, saved->head.keys,
                                            ret_context);
        return status == CAIRN_OK ? CAIRN_CLI_OK : cairn_cli_fail(cli, status);
}

// ---- output ----

static const double budgets[] = {0.01, 0.02, 0.05, 0.1, 0.2, 0.5};
enum {
        BUDGETS = sizeof(budgets) / sizeof(budgets[0])
};

static uint64_t at(const struct cairn_plan *plan, uint32_t layer, uint32_t head)
{
        return (uint64_t)layer * plan->kv_heads + head;
}

static void print_table(const struct cairn_plan *plan, double target)
{
        printf("%llu tokens, %u layers, %u KV heads\n\n", (unsigned long long)plan->tokens,
               plan->layers, plan->kv_heads);
        printf("%8s %8s %8s   %s\n", "budget", "mass", "lowest", "where");
        for (int i = 0; i < BUDGETS; i++)
                printf("%7.2f%% %7.2f%% %7.2f%%   layer %u, head %u\n", 100 * budgets[i],
                       100 * plan->budgets[i].mass, 100 * plan->budgets[i].mass_lowest,
                       plan->budgets[i].lowest_layer, plan->budgets[i].lowest_head);
        printf("%7.2f%% %7.2f%% %7.2f%%   layer %u, head %u   (the smallest for %.4g%%)\n\n",
               100 * plan->needed.share, 100 * plan->needed.mass, 100 * plan->needed.mass_lowest,
               plan->needed.lowest_layer, plan->needed.lowest_head, 100 * target);
        printf("tokens needed for %.4g%% of the mass\n%8s %10s %10s %10s\n", 100 * target, "layer",
               "fewest", "mean", "most");
        for (uint32_t layer = 0; layer < plan->layers; layer++) {
                uint32_t fewest = UINT32_MAX;
                uint32_t most = 0;
                double sum = 0;

                for (uint32_t head = 0; head < plan->kv_heads; head++) {
                        uint32_t needed = plan->head_needed[at(plan, layer, head)];

                        fewest = needed < fewest ? needed : fewest;
                        most = needed > most ? needed : most;
                        sum += needed;
                }
                printf("%8u %10u %10.0f %10u\n", layer, fewest, sum / plan->kv_heads, most);
        }
}

static void json_point(const struct cairn_plan_point *point)
{
        printf("{\"share\": ");
        cairn_cli_json_number(stdout, point->share);
        printf(", \"mass\": ");
        cairn_cli_json_number(stdout, point->mass);
        printf(", \"mass_lowest\": ");
        cairn_cli_json_number(stdout, point->mass_lowest);
        printf(", \"layer\": %u, \"head\": %u}", point->lowest_layer, point->lowest_head);
}

static void json_points(const char *name, const struct cairn_plan_point *points, int count)
{
        printf(", \"%s\": [", name);
        for (int i = 0; i < count; i++) {
                fputs(i ? ", " : "", stdout);
                json_point(&points[i]);
        }
        putchar(']');
}

static void print_json(const struct cairn_plan *plan, double target)
{
        printf("{\"tokens\": %llu, \"target_mass\": ", (unsigned long long)plan->tokens);
        cairn_cli_json_number(stdout, target);
        printf(", \"needed\": ");
        json_point(&plan->needed);
        json_points("budgets", plan->budgets, BUDGETS);
        json_points("curve", plan->curve, CAIRN_PLAN_CURVE_POINTS);
        printf(", \"layers\": [");
        for (uint32_t layer = 0; layer < plan->layers; layer++) {
                printf("%s{\"layer\": %u, \"heads\": [", layer ? ", " : "", layer);
                for (uint32_t head = 0; head < plan->kv_heads; head++) {
                        uint64_t i = at(plan, layer, head);

                        printf("%s{\"needed\": %u, \"mass\": ", head ? ", " : "",
                               plan->head_needed[i]);
                        cairn_cli_json_number(stdout, (double)plan->head_mass_needed[i]);
                        printf(", \"protected\": %u}", plan->head_protected[i]);
                }
                fputs("]}", stdout);
        }
        puts("]}");
}

static int draw(const struct cairn_cli *cli, const struct cairn_plan *plan, double target)
{
        FILE *file = fopen(cli->plot, "w");
        bool good;

        if (file) {
                cairn_cli_plan_draw(file, plan, target);
                good = ferror(file) == 0;
                good = fclose(file) == 0 && good;
                if (good)
                        return CAIRN_CLI_OK;
        }
        fprintf(stderr, "cairnctl plan: %s: %s\n", cli->plot, strerror(errno));
        return CAIRN_CLI_FAILED;
}

static int plan_saved(struct cairn_cli *cli, const struct saved *saved)
{
        struct cairn_context context;
        struct cairn_plan_args args = {.target_mass =
                                           cli->target_mass > 0 ? cli->target_mass : 0.99,
                                       .budgets = budgets,
                                       .budgets_count = BUDGETS};
        struct cairn_plan *plan;
        int code = open_chain(cli, saved, &context);
        int status;

        if (code != CAIRN_CLI_OK)
                return code;
        plan = malloc(sizeof(*plan));
        if (!plan)
                return CAIRN_CLI_FAILED;
        cairn_retain_args_init(&args.retain);
        args.retain.context = &context;
        args.retain.queries = saved->queries;
        args.retain.query_heads = saved->head.query_heads;
        args.retain.proxies_count = saved->head.proxies;
        args.retain.scale = saved->head.scale;
        status = cairn_plan(cli->client, NULL, &args, NULL, 0, plan);
        if (status != CAIRN_OK)
                code = cairn_cli_fail(cli, status);
        else if (cli->json)
                print_json(plan, args.target_mass);
        else
                print_table(plan, args.target_mass);
        if (status == CAIRN_OK && cli->plot)
                code = draw(cli, plan, args.target_mass);
        free(plan);
        return code;
}

int cairn_cli_plan(struct cairn_cli *cli)
{
        struct saved saved;
        int code;

        if (cli->argc < 1) {
                fputs("cairnctl plan: name a file of cairn.save_proxies; try: cairnctl plan "
                      "--help\n",
                      stderr);
                return CAIRN_CLI_USAGE;
        }
        if (!read_file(cli->argv[0], &saved))
                return CAIRN_CLI_FAILED;
        code = plan_saved(cli, &saved);
        free(saved.bytes);
        return code;
}
