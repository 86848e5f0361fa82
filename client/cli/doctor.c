// cairnctl doctor: is this machine fit, what to change, and whether loading beats recomputing.
#include "client/cli/doctor.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/cli/cli.h"
#include "client/cli/sample.h"

#define SET(field, ...) ((void)snprintf((field), sizeof(field), __VA_ARGS__))

enum {
        FINDINGS = 9,
        COPY_BYTES = 64 << 20
};

static const char *verdict_name(enum cairn_cli_verdict verdict)
{
        static const char *const names[] = {"ok", "slower", "bad"};

        return names[verdict];
}

// What the running daemon says of itself; it need not run.
static void check_daemon(const struct cairn_cli *cli, struct cairn_cli_finding *ret_finding)
{
        struct cairn_client_options options = {
            .socket_path = cli->socket_path, .name = "cairnctl", .timeout_ms = 2000};
        struct cairn_client *client = NULL;
        struct cairn_cli_sample *sample = calloc(1, sizeof(*sample));
        char text[640] = "";

        ret_finding->what = "daemon";
        if (!sample || cairn_client_create(&options, &client, text, sizeof(text)) != CAIRN_OK ||
            cairn_cli_sample_take(client, sample) != CAIRN_OK) {
                ret_finding->verdict = CAIRN_CLI_SLOWER;
                SET(ret_finding->found, "none answers: %.130s", text);
                SET(ret_finding->advice, "start it, and run doctor again for its side of things");
        } else {
                bool uring = cairn_cli_sample_get(sample, "cairn_device_uring") > 0;
                bool direct = cairn_cli_sample_get(sample, "cairn_device_direct") > 0;
                bool failed = cairn_cli_sample_get(sample, "cairn_nvme_failed") > 0;

                SET(ret_finding->found, "%.60s: %s, %s, %.0f blocks%s", cairn_client_socket(client),
                    uring ? "io_uring" : "pread/pwrite", direct ? "O_DIRECT" : "buffered",
                    cairn_cli_sample_get(sample, "cairn_blocks"), failed ? ", DISK FAILED" : "");
                ret_finding->verdict = failed            ? CAIRN_CLI_BAD
                                       : uring && direct ? CAIRN_CLI_GOOD
                                                         : CAIRN_CLI_SLOWER;
                if (failed)
                        SET(ret_finding->advice, "look at the disk and at the daemon's log");
        }
        cairn_client_destroy(client);
        free(sample);
}

// Bytes a second of a copy in memory: what a block in the RAM tier is loaded at, about.
static double copy_bytes_s(void)
{
        char *from = malloc(COPY_BYTES);
        char *to = malloc(COPY_BYTES);
        double best_s = 0;

        for (int round = 0; from && to && round < 4; round++) {
                double begin_s;
                double took_s;

                memset(from, round, COPY_BYTES);
                begin_s = cairn_cli_now_s();
                memcpy(to, from, COPY_BYTES);
                took_s = cairn_cli_now_s() - begin_s;
                if (to[round] == (char)round && (best_s == 0 || took_s < best_s))
                        best_s = took_s;
        }
        free(from);
        free(to);
        return best_s > 0 ? COPY_BYTES / best_s : 0;
}

static void print_break_even(const struct cairn_cli *cli, double disk_bytes_s)
{
        double per_token = cli->model_bytes_per_token;
        double ram = copy_bytes_s() / per_token;
        double disk = disk_bytes_s / per_token;
        double prefill = cli->prefill_rate;

        if (cli->json) {
                printf(", \"break_even\": {\"prefill_tokens_s\": %g, \"ram_tokens_s\": %g, "
                       "\"disk_tokens_s\": %g, \"load_from_ram\": %s, \"load_from_disk\": %s}",
                       prefill, ram, disk, ram > prefill ? "true" : "false",
                       disk > prefill ? "true" : "false");
                return;
        }
        printf("\nprefill computes %.0f tokens/s; RAM loads %.0f (%.1fx), this disk %.0f (%.1fx)\n",
               prefill, ram, ram / prefill, disk, disk / prefill);
        if (disk > prefill)
                puts("loading from disk beats recomputing");
        else if (ram > prefill)
                puts(
                    "load from RAM, recompute what only the disk has: nvme_bytes = 0 loses little");
        else
                puts("recomputing beats loading: cairn pays here by retrieval alone");
}

static void print_findings(const struct cairn_cli *cli, const struct cairn_cli_finding *findings)
{
        if (cli->json)
                fputs("{\"checks\": [", stdout);
        for (int i = 0; i < FINDINGS; i++) {
                const struct cairn_cli_finding *f = &findings[i];

                if (!cli->json) {
                        printf("%-7s %-12s %s\n", verdict_name(f->verdict), f->what, f->found);
                        if (f->advice[0])
                                printf("%20s -> %s\n", "", f->advice);
                        continue;
                }
                printf("%s{\"check\": \"%s\", \"verdict\": \"%s\", \"found\": ", i ? ", " : "",
                       f->what, verdict_name(f->verdict));
                cairn_cli_json_text(stdout, f->found);
                fputs(", \"advice\": ", stdout);
                cairn_cli_json_text(stdout, f->advice);
                putchar('}');
        }
        if (cli->json)
                putchar(']');
}

int cairn_cli_doctor(struct cairn_cli *cli)
{
        struct cairn_cli_finding findings[FINDINGS] = {0};
        const char *directory = cli->argc > 0 ? cli->argv[0] : "/var/lib/cairn";
        bool wants_break_even = cli->model_bytes_per_token > 0 || cli->prefill_rate > 0;
        double read_bytes_s;
        int code = CAIRN_CLI_OK;

        if (wants_break_even && !(cli->model_bytes_per_token > 0 && cli->prefill_rate > 0)) {
                fputs("cairnctl doctor: --model-bytes-per-token and --prefill-rate go together\n",
                      stderr);
                return CAIRN_CLI_USAGE;
        }
        cairn_cli_check_kernel(&findings[0]);
        cairn_cli_check_processor(&findings[1]);
        cairn_cli_check_uring(&findings[2]);
        cairn_cli_check_memlock(&findings[3]);
        cairn_cli_check_descriptors(&findings[4]);
        cairn_cli_check_huge_pages(&findings[5]);
        cairn_cli_check_direct(directory, &findings[6]);
        cairn_cli_check_disk(directory, isatty(STDERR_FILENO), &findings[7], &read_bytes_s);
        check_daemon(cli, &findings[8]);
        print_findings(cli, findings);
        if (wants_break_even)
                print_break_even(cli, read_bytes_s);
        if (cli->json)
                puts("}");
        for (int i = 0; i < FINDINGS; i++)
                if (findings[i].verdict == CAIRN_CLI_BAD)
                        code = CAIRN_CLI_FAILED;
        return code;
}
