// cairnctl bench: a short measurement of the running daemon, as a worker would see it: one client,
// one request at a time, blocks of 1 MiB in an arena. What it puts it deletes; its space, an opaque
// one named "cairnctl bench", stays known.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/cli/cli.h"
#include "client/cli/sample.h"

enum {
        MS_DEFAULT = 500, // a step
        MS_MIN = 10,
        MS_MAX = 60 * 1000,
        BLOCK_BYTES = 1 << 20,
        BATCH = 16,
        CALLS_MAX = 1 << 20, // a step: beyond it, it ends early
        LEASE_MS = 10 * 1000
};

struct bench {
        struct cairn_cli *cli;
        struct cairn_arena *arena;
        uint8_t *blocks;
        uint32_t space;
        struct cairn_key keys[BATCH];
        double *seconds; // of each call of a step
        size_t calls;
        int steps; // done
};

struct step {
        const char *name;
        const char *what;
        int (*prepare)(struct bench *bench); // not timed; may be NULL
        int (*call)(struct bench *bench);
        uint64_t bytes; // moved by a call
};

static int ping(struct bench *bench)
{
        return cairn_ping(bench->cli->client, NULL, NULL);
}

static int put(struct bench *bench, uint32_t ack)
{
        struct cairn_put_args args = {.space = bench->space,
                                      .keys = bench->keys,
                                      .count = BATCH,
                                      .blocks = bench->blocks,
                                      .ack = ack};

        return cairn_put(bench->cli->client, NULL, &args, NULL);
}

static int put_memory(struct bench *bench)
{
        return put(bench, CAIRN_PUT_ACK_MEMORY);
}

static int put_disk(struct bench *bench)
{
        return put(bench, CAIRN_PUT_ACK_DISK);
}

static int get(struct bench *bench)
{
        struct cairn_get_args args = {
            .space = bench->space, .keys = bench->keys, .count = BATCH, .blocks = bench->blocks};

        return cairn_get(bench->cli->client, NULL, &args, NULL);
}

static int lookup(struct bench *bench)
{
        struct cairn_lease lease = {0};
        size_t found = 0;
        int status = cairn_lookup(bench->cli->client, NULL, bench->space, bench->keys, BATCH,
                                  LEASE_MS, &found, &lease);

        return status != CAIRN_OK ? status : cairn_release(bench->cli->client, NULL, &lease);
}

// Other blocks each time: puts of what is there would cost nothing.
static int remove_blocks(struct bench *bench)
{
        int statuses[BATCH];

        // Those that were not there (the first time) are as good.
        (void)cairn_delete(bench->cli->client, NULL, bench->space, bench->keys, BATCH, false,
                           statuses);
        bench->keys[0].bytes[0]++;
        for (size_t i = 0; i < BATCH; i++)
                bench->keys[i].bytes[1] = bench->keys[0].bytes[0];
        return CAIRN_OK;
}

static int compare(const void *a, const void *b)
{
        double one = *(const double *)a;
        double other = *(const double *)b;

        return one < other ? -1 : one > other;
}

static double quantile_us(const struct bench *bench, double quantile)
{
        return 1e6 * bench->seconds[(size_t)(quantile * (double)(bench->calls - 1))];
}

static void report(struct bench *bench, const struct step *step, double busy_s)
{
        double rate = (double)bench->calls / busy_s;
        char speed[32] = "";

        qsort(bench->seconds, bench->calls, sizeof(bench->seconds[0]), compare);
        if (bench->cli->json) {
                printf("%s{\"step\": \"%s\", \"calls\": %zu, \"p50_us\": %.1f, \"p99_us\": %.1f, "
                       "\"calls_per_second\": %.1f, \"bytes_per_second\": %.0f}",
                       bench->steps ? ", " : "", step->name, bench->calls, quantile_us(bench, 0.5),
                       quantile_us(bench, 0.99), rate, rate * (double)step->bytes);
        } else {
                if (step->bytes > 0)
                        (void)snprintf(speed, sizeof(speed), "%.2f GB/s",
                                       rate * (double)step->bytes / 1e9);
                printf("%-11s %-34s %7zu %9.0f us %9.0f us %9.0f/s %10s\n", step->name, step->what,
                       bench->calls, quantile_us(bench, 0.5), quantile_us(bench, 0.99), rate,
                       speed);
        }
        bench->steps++;
}

static int run_step(struct bench *bench, const struct step *step, unsigned ms)
{
        double end_s = cairn_cli_now_s() + ms / 1e3;
        double busy_s = 0;

        bench->calls = 0;
        do {
                double begin_s;
                int status = step->prepare ? step->prepare(bench) : CAIRN_OK;

                begin_s = cairn_cli_now_s();
                if (status == CAIRN_OK)
                        status = step->call(bench);
                if (status != CAIRN_OK)
                        return status;
                bench->seconds[bench->calls] = cairn_cli_now_s() - begin_s;
                busy_s += bench->seconds[bench->calls++];
        } while (cairn_cli_now_s() < end_s && bench->calls < CALLS_MAX);
        report(bench, step, busy_s);
        return CAIRN_OK;
}

static int set_up(struct bench *bench)
{
        struct cairn_space_config config = {.kind = CAIRN_SPACE_OPAQUE,
                                            .model = "cairnctl bench",
                                            .block_tokens = 256,
                                            .tp_size = 1};
        uint64_t seed = (uint64_t)(cairn_cli_now_s() * 1e9) ^ (uint64_t)getpid() << 40;
        int status;

        (void)snprintf(config.layout, sizeof(config.layout), "opaque");
        config.rope = CAIRN_ROPE_NONE;
        config.block_bytes = BLOCK_BYTES;
        bench->seconds = malloc(CALLS_MAX * sizeof(bench->seconds[0]));
        if (!bench->seconds)
                return CAIRN_ENOMEM;
        status = cairn_client_open_space(bench->cli->client, &config, &bench->space);
        if (status == CAIRN_OK)
                status = cairn_client_arena_create(bench->cli->client,
                                                   (uint64_t)BATCH * BLOCK_BYTES, &bench->arena);
        if (status != CAIRN_OK)
                return status;
        bench->blocks = cairn_client_arena_data(bench->arena);
        for (size_t i = 0; i < (size_t)BATCH * BLOCK_BYTES; i++)
                bench->blocks[i] = (uint8_t)((i * 2654435761u + seed) >> 13);
        for (size_t i = 0; i < BATCH; i++) {
                memcpy(bench->keys[i].bytes + 8, &seed, sizeof(seed));
                memcpy(bench->keys[i].bytes + 16, &i, sizeof(i));
        }
        return CAIRN_OK;
}

int cairn_cli_bench(struct cairn_cli *cli)
{
        static const struct step steps[] = {
            {"ping", "a round trip", NULL, ping, 0},
            {"put", "16 blocks of 1 MiB, whole in RAM", remove_blocks, put_memory,
             (uint64_t)BATCH * BLOCK_BYTES},
            {"lookup", "16 keys, and the lease's release", NULL, lookup, 0},
            {"get", "16 blocks of 1 MiB, from RAM", NULL, get, (uint64_t)BATCH * BLOCK_BYTES},
            {"put-durable", "16 blocks of 1 MiB, safe on disk", remove_blocks, put_disk,
             (uint64_t)BATCH * BLOCK_BYTES},
        };
        struct bench bench = {.cli = cli};
        uint64_t ms = MS_DEFAULT;
        char *end = NULL;
        int status;

        if (cli->argc > 0)
                ms = strtoull(cli->argv[0], &end, 10);
        if (ms < MS_MIN || ms > MS_MAX || (end && *end != '\0')) {
                fprintf(stderr, "cairnctl bench %s: %d to %d ms a step, please\n", cli->argv[0],
                        MS_MIN, MS_MAX);
                return CAIRN_CLI_USAGE;
        }
        status = set_up(&bench);
        if (cli->json)
                fputs("{\"steps\": [", stdout);
        for (size_t i = 0; status == CAIRN_OK && i < sizeof(steps) / sizeof(steps[0]); i++)
                status = run_step(&bench, &steps[i], (unsigned)ms);
        if (cli->json)
                puts("]}");
        if (bench.arena) {
                char text[640];

                (void)snprintf(text, sizeof(text), "%s", cairn_client_error(cli->client));
                (void)remove_blocks(&bench); // as far as they can be
                if (status != CAIRN_OK)
                        fprintf(stderr, "cairnctl bench: %s (%s)\n", text,
                                cairn_error_name(status));
        } else if (status != CAIRN_OK) {
                (void)cairn_cli_fail(cli, status);
        }
        free(bench.seconds);
        return status == CAIRN_OK              ? CAIRN_CLI_OK
               : status == CAIRN_EDISCONNECTED ? CAIRN_CLI_NO_DAEMON
                                               : CAIRN_CLI_FAILED;
}
