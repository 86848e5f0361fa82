// cairnctl config: what the daemon runs with, and who said so.
#include <string.h>

#include "client/cli/cli.h"

struct listing {
        const struct cairn_cli *cli;
        const char *prefix;
        int count;
};

static void print_json(const struct cairn_setting *setting)
{
        cairn_cli_json_text(stdout, setting->name);
        fputs(": {\"value\": ", stdout);
        cairn_cli_json_text(stdout, setting->value);
        if (setting->number > 0)
                printf(", \"number\": %llu", (unsigned long long)setting->number);
        printf(", \"source\": \"%s\", \"reloadable\": %s}", setting->source,
               setting->reloadable ? "true" : "false");
}

static void on_setting(void *arg, const struct cairn_setting *setting)
{
        struct listing *listing = arg;
        char number[32] = "";

        if (strncmp(setting->name, listing->prefix, strlen(listing->prefix)) != 0)
                return;
        if (listing->cli->json) {
                fputs(listing->count ? ", " : "", stdout);
                print_json(setting);
        } else {
                if (setting->number > 0)
                        (void)snprintf(number, sizeof(number), " (%llu)",
                                       (unsigned long long)setting->number);
                printf("%-18s = %s%s ; from %s%s\n", setting->name, setting->value, number,
                       setting->source, setting->reloadable ? ", reload changes it" : "");
        }
        listing->count++;
}

int cairn_cli_config(struct cairn_cli *cli)
{
        struct listing listing = {.cli = cli, .prefix = cli->argc > 0 ? cli->argv[0] : ""};
        char file[4096] = "";
        int status;

        if (cli->json)
                fputs("{\"settings\": {", stdout);
        status = cairn_show_config(cli->client, NULL, on_setting, &listing, file);
        if (status != CAIRN_OK)
                return cairn_cli_fail(cli, status);
        if (cli->json) {
                fputs("}, \"file\": ", stdout);
                if (file[0])
                        cairn_cli_json_text(stdout, file);
                else
                        fputs("null", stdout);
                puts("}");
        }
        if (listing.count == 0) {
                fprintf(stderr, "cairnctl config: no key begins with %s; see cairn.conf(5)\n",
                        listing.prefix);
                return CAIRN_CLI_FAILED;
        }
        return CAIRN_CLI_OK;
}
