// cairnctl reload and drain.
#include <stdlib.h>

#include "client/cli/cli.h"

int cairn_cli_reload(struct cairn_cli *cli)
{
        char text[512] = "";
        int status = cairn_reload(cli->client, NULL, text);

        if (status != CAIRN_OK)
                return cairn_cli_fail(cli, status);
        if (cli->json) {
                printf("{\"reload\": ");
                cairn_cli_json_text(stdout, text);
                puts("}");
        } else {
                puts(text);
        }
        return CAIRN_CLI_OK;
}

int cairn_cli_drain(struct cairn_cli *cli)
{
        unsigned long long limit_ms = 0;
        char extra;
        int status;

        if (cli->argc > 0 && sscanf(cli->argv[0], "%llu%c", &limit_ms, &extra) != 1) {
                fprintf(stderr, "cairnctl drain %s: a number of milliseconds, please\n",
                        cli->argv[0]);
                return CAIRN_CLI_USAGE;
        }
        status = cairn_drain(cli->client, NULL, limit_ms);
        if (status != CAIRN_OK)
                return cairn_cli_fail(cli, status);
        puts(cli->json ? "{\"draining\": true}" : "draining: it stops when all blocks are on disk");
        return CAIRN_CLI_OK;
}
