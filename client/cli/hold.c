// cairnctl hold: set, lift, list.
#include <string.h>
#include <time.h>

#include "client/cli/cli.h"
#include "client/cli/listing.h"
#include "cairn/tenant.h"

enum {
        TEXT_BYTES = 320
};

struct listing {
        const struct cairn_cli *cli;
        uint32_t shown;
};

static void when_text(uint64_t since_ms, char ret_text[32])
{
        time_t seconds = (time_t)(since_ms / 1000);
        struct tm parts;

        if (!gmtime_r(&seconds, &parts) ||
            strftime(ret_text, 32, "%Y-%m-%d %H:%M:%SZ", &parts) == 0)
                (void)snprintf(ret_text, 32, "?");
}

static void print_row(const struct cairn_hold_info *info)
{
        char name[TEXT_BYTES], note[TEXT_BYTES], when[32], scope[96], key[65];

        cairn_cli_plain(info->name, name, sizeof(name));
        cairn_cli_plain(info->note, note, sizeof(note));
        when_text(info->since_ms, when);
        if (info->key) {
                cairn_key_to_text(info->key, key);
                (void)snprintf(scope, sizeof(scope), "space %u, up to %.16s", info->space, key);
        } else if (info->tenant[0] != '\0') {
                (void)snprintf(scope, sizeof(scope), "tenant %.48s", info->tenant);
        } else {
                (void)snprintf(scope, sizeof(scope), "space %u", info->space);
        }
        printf("%-24s %-36s %9llu %-20s %s\n", name, scope, (unsigned long long)info->blocks, when,
               note);
}

static void print_json(const struct cairn_hold_info *info)
{
        char key[65];

        fputs("{\"name\": ", stdout);
        cairn_cli_json_text(stdout, info->name);
        fputs(", \"note\": ", stdout);
        cairn_cli_json_text(stdout, info->note);
        if (info->tenant[0] != '\0') {
                fputs(", \"tenant\": ", stdout);
                cairn_cli_json_text(stdout, info->tenant);
        } else {
                printf(", \"space\": %u", info->space);
        }
        if (info->key) {
                cairn_key_to_text(info->key, key);
                printf(", \"key\": \"%s\"", key);
        }
        printf(", \"since_ms\": %llu, \"blocks\": %llu}", (unsigned long long)info->since_ms,
               (unsigned long long)info->blocks);
}

static void on_hold(void *arg, const struct cairn_hold_info *info)
{
        struct listing *listing = arg;

        if (listing->cli->json) {
                fputs(listing->shown ? ", " : "", stdout);
                print_json(info);
        } else {
                if (listing->shown == 0)
                        printf("%-24s %-36s %9s %-20s %s\n", "hold", "on", "blocks", "since",
                               "note");
                print_row(info);
        }
        listing->shown++;
}

static int list(struct cairn_cli *cli)
{
        struct listing listing = {.cli = cli};
        int status;

        if (cli->json)
                fputs("{\"holds\": [", stdout);
        status = cairn_list_holds(cli->client, NULL, on_hold, &listing);
        if (cli->json)
                puts("]}");
        if (status != CAIRN_OK)
                return cairn_cli_fail(cli, status);
        if (!cli->json && listing.shown == 0)
                puts("no legal hold");
        return CAIRN_CLI_OK;
}

static int done(const struct cairn_cli *cli, const char *name, const char *field, uint64_t blocks)
{
        char plain[TEXT_BYTES];

        if (cli->json) {
                printf("{\"%s\": ", field);
                cairn_cli_json_text(stdout, name);
                printf(", \"blocks\": %llu}\n", (unsigned long long)blocks);
        } else {
                cairn_cli_plain(name, plain, sizeof(plain));
                printf("%s %s: %llu blocks\n", field, plain, (unsigned long long)blocks);
        }
        return CAIRN_CLI_OK;
}

static int set(struct cairn_cli *cli, const char *name)
{
        struct cairn_hold_args args = {.name = name,
                                       .note = cli->options[CAIRN_CLI_NOTE],
                                       .tenant = cli->options[CAIRN_CLI_TENANT]};
        struct cairn_key key;
        uint64_t space = 0;
        uint64_t blocks;
        int status;

        if (cli->options[CAIRN_CLI_SPACE] &&
            cairn_cli_parse_count("space", cli->options[CAIRN_CLI_SPACE], UINT32_MAX, &space) !=
                CAIRN_CLI_OK)
                return CAIRN_CLI_USAGE;
        args.space = (uint32_t)space;
        if (cli->options[CAIRN_CLI_KEY]) {
                if (cairn_key_from_text(cli->options[CAIRN_CLI_KEY], &key) != CAIRN_OK) {
                        fputs("cairnctl hold: --key: all 64 hex digits, please\n", stderr);
                        return CAIRN_CLI_USAGE;
                }
                args.key = &key;
        }
        if ((args.tenant != NULL) == (args.space != 0) || (args.key && !args.space)) {
                fputs("cairnctl hold set: on what? --tenant T, or --space N, or --space N --key "
                      "HEX (a block and all before it)\n",
                      stderr);
                return CAIRN_CLI_USAGE;
        }
        status = cairn_set_hold(cli->client, NULL, &args, &blocks);
        return status == CAIRN_OK ? done(cli, name, "held", blocks) : cairn_cli_fail(cli, status);
}

int cairn_cli_hold(struct cairn_cli *cli)
{
        const char *verb = cli->argc > 0 ? cli->argv[0] : "list";
        uint64_t blocks;
        int status;

        if (strcmp(verb, "list") == 0 && cli->argc < 2)
                return list(cli);
        if (cli->argc == 2 && strcmp(verb, "set") == 0)
                return set(cli, cli->argv[1]);
        if (cli->argc != 2 || strcmp(verb, "lift") != 0) {
                fputs("cairnctl hold: list, set NAME with what it is on, or lift NAME\n", stderr);
                return CAIRN_CLI_USAGE;
        }
        status = cairn_lift_hold(cli->client, NULL, cli->argv[1], &blocks);
        return status == CAIRN_OK ? done(cli, cli->argv[1], "lifted", blocks)
                                  : cairn_cli_fail(cli, status);
}
