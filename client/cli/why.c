// cairnctl why: where a block is, or what became of it.
#include <string.h>
#include <time.h>

#include "client/cli/cli.h"
#include "client/cli/record.h"

enum {
        RECORDS_DEFAULT = 8,
        RECORDS_MAX = 1024,
        TEXT_BYTES = 512
};

struct why {
        bool json;
        uint64_t now_ms;
        uint32_t blocks;
        uint32_t records;
};

static void where_words(const struct cairn_where *where)
{
        const struct cairn_block_info *info = &where->info;
        char text[16];

        printf("space %u, tenant %s:", info->space, where->tenant_name);
        if (info->ram_bytes > 0) {
                cairn_cli_bytes((double)info->ram_bytes, text);
                printf(" in RAM (%s)", text);
        }
        if (info->nvme_bytes > 0) {
                cairn_cli_bytes((double)info->nvme_bytes, text);
                printf("%s on NVMe (%s)", info->ram_bytes > 0 ? ", and" : "", text);
        }
        if (info->ram_bytes + info->nvme_bytes == 0)
                printf(" on its way into a tier");
        else if (info->unwritten)
                printf(", not on NVMe yet");
        printf("; held %u times, %u children, %llu uses of others since its last", info->holds,
               info->children, (unsigned long long)info->uses_since);
        if (where->pinned)
                printf("; pinned");
        if (where->legal_hold[0])
                printf("; under the legal hold %s", where->legal_hold);
        if (info->expires_ms > 0) {
                cairn_cli_duration((double)info->expires_ms, text);
                printf("; expires in %s", text);
        }
        putchar('\n');
}

static void where_json(const struct cairn_where *where)
{
        const struct cairn_block_info *info = &where->info;

        printf("{\"space\": %u, \"tenant\": %u, \"tenant_name\": ", info->space, info->tenant);
        cairn_cli_json_text(stdout, where->tenant_name);
        printf(", \"ram_bytes\": %llu, \"nvme_bytes\": %llu, \"holds\": %u, \"children\": %u, "
               "\"unwritten\": %s, \"uses_since\": %llu, \"generation\": %llu, \"expires_ms\": "
               "%llu, \"pinned\": %s, \"legal_hold\": ",
               (unsigned long long)info->ram_bytes, (unsigned long long)info->nvme_bytes,
               info->holds, info->children, info->unwritten ? "true" : "false",
               (unsigned long long)info->uses_since, (unsigned long long)info->generation,
               (unsigned long long)info->expires_ms, where->pinned ? "true" : "false");
        if (where->legal_hold[0])
                cairn_cli_json_text(stdout, where->legal_hold);
        else
                fputs("null", stdout);
        putchar('}');
}

static void on_where(void *arg, const struct cairn_where *where)
{
        struct why *why = arg;

        if (why->json) {
                fputs(why->blocks ? ", " : "", stdout);
                where_json(where);
        } else {
                where_words(where);
        }
        why->blocks++;
}

static void on_entry(void *arg, const struct cairn_audit_entry *entry)
{
        struct why *why = arg;

        if (!why->json) {
                if (why->blocks == 0 && why->records == 0)
                        puts("it is not here");
                cairn_cli_record_words(entry, why->now_ms);
        } else {
                fputs(why->records ? ", " : "], \"records\": [", stdout);
                cairn_cli_record_json(entry);
        }
        why->records++;
}

static int parse(const struct cairn_cli *cli, struct cairn_key *ret_key, uint64_t *ret_space,
                 uint64_t *ret_max)
{
        const char *const *options = cli->options;

        if (cli->argc != 1 || cairn_key_from_text(cli->argv[0], ret_key) != CAIRN_OK) {
                fputs("cairnctl why: a key of 64 hex digits, please, as cairnctl blocks shows "
                      "them\n",
                      stderr);
                return CAIRN_CLI_USAGE;
        }
        *ret_max = RECORDS_DEFAULT;
        if (options[CAIRN_CLI_MAX] && cairn_cli_parse_count("max", options[CAIRN_CLI_MAX],
                                                            RECORDS_MAX, ret_max) != CAIRN_CLI_OK)
                return CAIRN_CLI_USAGE;
        if (options[CAIRN_CLI_SPACE])
                return cairn_cli_parse_count("space", options[CAIRN_CLI_SPACE], UINT32_MAX,
                                             ret_space);
        return CAIRN_CLI_OK;
}

int cairn_cli_why(struct cairn_cli *cli)
{
        struct why why = {.json = cli->json, .now_ms = (uint64_t)time(NULL) * 1000};
        struct cairn_key key;
        uint64_t space = 0, max;
        char text[TEXT_BYTES] = "";
        int code = parse(cli, &key, &space, &max);
        int status;

        if (code != CAIRN_CLI_OK)
                return code;
        if (cli->json)
                printf("{\"key\": \"%s\", \"blocks\": [", cli->argv[0]);
        status = cairn_why(cli->client, NULL, (uint32_t)space, &key, (uint32_t)max, on_where,
                           on_entry, &why, text);
        if (status != CAIRN_OK) {
                if (cli->json)
                        puts("], \"error\": true}");
                return cairn_cli_fail(cli, status);
        }
        if (cli->json) {
                fputs(why.records ? "], \"text\": " : "], \"records\": [], \"text\": ", stdout);
                cairn_cli_json_text(stdout, text);
                puts("}");
        } else if (text[0]) {
                puts(text);
        }
        return why.blocks > 0 ? CAIRN_CLI_OK : CAIRN_CLI_FAILED;
}
