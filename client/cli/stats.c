// cairnctl stats.
#include <string.h>

#include "client/cli/cli.h"

struct listing {
        const struct cairn_cli *cli;
        const char *prefix;
        int count;
};

static void on_metric(void *arg, const char *name, const char *labels, double value)
{
        struct listing *listing = arg;
        char full[256];

        if (strncmp(name, listing->prefix, strlen(listing->prefix)) != 0)
                return;
        (void)snprintf(full, sizeof(full), *labels ? "%s{%s}" : "%s%s", name, labels);
        if (listing->cli->json) {
                fputs(listing->count ? ", " : "{", stdout);
                cairn_cli_json_text(stdout, full);
                fputs(": ", stdout);
                cairn_cli_json_number(stdout, value);
        } else {
                printf("%-56s ", full);
                cairn_cli_json_number(stdout, value);
                putchar('\n');
        }
        listing->count++;
}

int cairn_cli_stats(struct cairn_cli *cli)
{
        struct listing listing = {.cli = cli, .prefix = cli->argc > 0 ? cli->argv[0] : ""};
        int status;

        status = cairn_stats(cli->client, NULL, on_metric, &listing);
        if (status != CAIRN_OK)
                return cairn_cli_fail(cli, status);
        if (cli->json)
                puts(listing.count ? "}" : "{}");
        if (listing.count == 0) {
                fprintf(stderr, "cairnctl: no metric begins with %s\n", listing.prefix);
                return CAIRN_CLI_FAILED;
        }
        return CAIRN_CLI_OK;
}
