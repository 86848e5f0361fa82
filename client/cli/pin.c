// cairnctl pin, unpin and purge.
#include <stdlib.h>
#include <string.h>

#include "client/cli/cli.h"
#include "cairn/tenant.h"

struct search {
        uint32_t number; // 0: the only one
        uint32_t found;
        struct cairn_space_info info;
};

static void on_space(void *arg, const struct cairn_space_info *info)
{
        struct search *search = arg;

        if (search->number != 0 && info->id != search->number)
                return;
        search->info = *info;
        search->found++;
}

// Opens the space that --space names: as an operator whoever's it is, else one's own.
static int open_space(struct cairn_cli *cli, uint32_t *ret_space)
{
        struct search search = {.number = 0};
        uint64_t number = 0;
        int status;

        if (cli->options[CAIRN_CLI_SPACE] &&
            cairn_cli_parse_count("space", cli->options[CAIRN_CLI_SPACE], UINT32_MAX, &number) !=
                CAIRN_CLI_OK)
                return CAIRN_CLI_USAGE;
        search.number = (uint32_t)number;
        status = cairn_list_spaces(cli->client, NULL, on_space, &search);
        if (status != CAIRN_OK)
                return cairn_cli_fail(cli, status);
        if (search.found != 1) {
                fprintf(stderr, search.found == 0
                                    ? "cairnctl: no such space; try: cairnctl spaces\n"
                                    : "cairnctl: which space? --space N; try: cairnctl "
                                      "spaces\n");
                return search.found == 0 ? CAIRN_CLI_FAILED : CAIRN_CLI_USAGE;
        }
        status = cairn_client_open_stored_space(cli->client, &search.info, ret_space);
        if (status == CAIRN_EPERM)
                status = cairn_client_open_space(cli->client, &search.info.config, ret_space);
        return status == CAIRN_OK ? CAIRN_CLI_OK : cairn_cli_fail(cli, status);
}

static int begin(struct cairn_cli *cli, struct cairn_key *ret_key, uint32_t *ret_space)
{
        if (cli->argc != 1 || cairn_key_from_text(cli->argv[0], ret_key) != CAIRN_OK) {
                fputs("cairnctl: a key, please: all 64 hex digits\n", stderr);
                return CAIRN_CLI_USAGE;
        }
        return open_space(cli, ret_space);
}

static int end(const struct cairn_cli *cli, const char *field, int status, const char *text)
{
        if (status != CAIRN_OK) {
                fprintf(stderr, "cairnctl: %s (%s)\n", text, cairn_error_name(status));
                return CAIRN_CLI_FAILED;
        }
        if (cli->json)
                printf("{\"%s\": \"%s\"}\n", field, cli->argv[0]);
        else
                printf("%s %s\n", field, cli->argv[0]);
        return CAIRN_CLI_OK;
}

// "90s", "15m", "1h", "7d".
static int parse_span(const char *text, uint64_t *ret_ms)
{
        static const struct {
                char unit;
                double ms;
        } units[] = {{'s', 1e3}, {'m', 60e3}, {'h', 3600e3}, {'d', 86400e3}};
        char *rest;
        double value = strtod(text, &rest);

        for (size_t i = 0; rest != text && i < sizeof(units) / sizeof(units[0]); i++) {
                if (rest[0] == units[i].unit && rest[1] == '\0' && value > 0 && value < 1e6) {
                        *ret_ms = (uint64_t)(value * units[i].ms);
                        return CAIRN_CLI_OK;
                }
        }
        fprintf(stderr, "cairnctl: --for %s: a time like 90s, 15m, 1h or 7d, please\n", text);
        return CAIRN_CLI_USAGE;
}

int cairn_cli_pin(struct cairn_cli *cli)
{
        struct cairn_key key;
        struct cairn_pin_args args = {
            .keys = &key, .count = 1, .owner = cli->options[CAIRN_CLI_OWNER], .hard = true};
        int pinned = CAIRN_OK;
        int status;
        int code = cli->options[CAIRN_CLI_FOR]
                       ? parse_span(cli->options[CAIRN_CLI_FOR], &args.for_ms)
                       : CAIRN_CLI_OK;

        if (code == CAIRN_CLI_OK)
                code = begin(cli, &key, &args.space);
        if (code != CAIRN_CLI_OK)
                return code;
        status = cairn_pin(cli->client, NULL, &args, &pinned);
        if (status != CAIRN_OK)
                return cairn_cli_fail(cli, status);
        return end(cli, "pinned", pinned, cairn_error_text(pinned));
}

int cairn_cli_unpin(struct cairn_cli *cli)
{
        struct cairn_key key;
        uint32_t space;
        int unpinned = CAIRN_OK;
        int status;
        int code = begin(cli, &key, &space);

        if (code != CAIRN_CLI_OK)
                return code;
        status = cairn_unpin(cli->client, NULL, space, &key, 1, cli->options[CAIRN_CLI_OWNER],
                             &unpinned);
        if (status != CAIRN_OK)
                return cairn_cli_fail(cli, status);
        return end(cli, "unpinned", unpinned,
                   unpinned == CAIRN_ENOENT ? "you have no such pin; --owner?"
                                            : cairn_error_text(unpinned));
}

int cairn_cli_purge(struct cairn_cli *cli)
{
        struct cairn_key key;
        uint32_t space;
        uint32_t pending = 0;
        int purged = CAIRN_OK;
        int status;
        int code = begin(cli, &key, &space);

        if (code != CAIRN_CLI_OK)
                return code;
        status = cairn_purge(cli->client, NULL, space, &key, 1, &purged, &pending);
        if (status != CAIRN_OK)
                return cairn_cli_fail(cli, status);
        if (purged == CAIRN_OK && pending > 0)
                fputs("cairnctl: somebody still reads it; it is overwritten when that ends\n",
                      stderr);
        return end(cli, pending > 0 ? "pending" : "purged", purged,
                   purged == CAIRN_EHELD ? cairn_client_error(cli->client)
                                         : cairn_error_text(purged));
}
