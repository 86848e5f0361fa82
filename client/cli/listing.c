// Pages of operators' lists.
#include "client/cli/listing.h"

#include <ctype.h>
#include <string.h>

enum {
        SHOWN_DEFAULT = 100,
        PAGE_MAX = 1024
};

// Half a byte of hex may be missing at the end: then it is refused.
static int parse_key(struct cairn_cli_listing *listing, const char *text)
{
        size_t size = strlen(text);
        char whole[65];
        struct cairn_key key;

        memset(whole, '0', 64);
        whole[64] = '\0';
        if (size == 0 || size > 64 || size % 2 != 0 ||
            cairn_key_from_text(memcpy(whole, text, size) ? whole : "", &key) != CAIRN_OK) {
                fprintf(stderr,
                        "cairnctl: --key %s: the first hex digits of a key, an even number of "
                        "them, please\n",
                        text);
                return CAIRN_CLI_USAGE;
        }
        memcpy(listing->key, key.bytes, sizeof(listing->key));
        listing->list.key = listing->key;
        listing->list.key_bytes = size / 2;
        return CAIRN_CLI_OK;
}

static int parse_tier(struct cairn_cli_listing *listing, const char *text)
{
        listing->list.tier = strcmp(text, "ram") == 0 ? 1 : strcmp(text, "nvme") == 0 ? 2 : 0;
        if (listing->list.tier != 0)
                return CAIRN_CLI_OK;
        fprintf(stderr, "cairnctl: --tier %s: ram or nvme, please\n", text);
        return CAIRN_CLI_USAGE;
}

static int parse(struct cairn_cli_listing *listing)
{
        const char *const *options = listing->cli->options;
        uint64_t value = 0;
        int code = CAIRN_CLI_OK;

        listing->left = SHOWN_DEFAULT;
        listing->list.held = options[CAIRN_CLI_HELD] != NULL;
        if (options[CAIRN_CLI_MAX])
                code = cairn_cli_parse_count("max", options[CAIRN_CLI_MAX], UINT64_MAX / 2,
                                             &listing->left);
        if (code == CAIRN_CLI_OK && options[CAIRN_CLI_AFTER])
                code = cairn_cli_parse_count("after", options[CAIRN_CLI_AFTER], UINT64_MAX,
                                             &listing->list.cursor);
        if (code == CAIRN_CLI_OK && options[CAIRN_CLI_SPACE])
                code = cairn_cli_parse_count("space", options[CAIRN_CLI_SPACE], UINT32_MAX, &value);
        listing->list.space = (uint32_t)value;
        if (code == CAIRN_CLI_OK && options[CAIRN_CLI_TENANT]) {
                code =
                    cairn_cli_parse_count("tenant", options[CAIRN_CLI_TENANT], UINT32_MAX, &value);
                listing->list.tenant = (uint32_t)value;
                listing->list.by_tenant = true;
        }
        if (code == CAIRN_CLI_OK && options[CAIRN_CLI_TIER])
                code = parse_tier(listing, options[CAIRN_CLI_TIER]);
        if (code == CAIRN_CLI_OK && options[CAIRN_CLI_KEY])
                code = parse_key(listing, options[CAIRN_CLI_KEY]);
        return code;
}

int cairn_cli_list(struct cairn_cli_listing *listing,
                   int (*page)(struct cairn_cli_listing *listing, uint64_t *ret_cursor))
{
        bool json = listing->cli->json;
        int code = parse(listing);

        if (code != CAIRN_CLI_OK)
                return code;
        if (json)
                printf("{\"%s\": [", listing->what);
        do {
                uint64_t before = listing->shown;
                uint64_t cursor = 0;
                int status;

                listing->list.max = listing->left > PAGE_MAX ? PAGE_MAX : (uint32_t)listing->left;
                status = listing->left > 0 ? page(listing, &cursor) : CAIRN_OK;
                if (status != CAIRN_OK)
                        return cairn_cli_fail(listing->cli, status);
                listing->left -= listing->shown - before;
                listing->list.cursor = cursor;
        } while (listing->list.cursor != 0 && listing->left > 0);
        if (json && listing->list.cursor != 0)
                printf("], \"after\": %llu}\n", (unsigned long long)listing->list.cursor);
        else if (json)
                puts("], \"after\": null}");
        else if (listing->list.cursor != 0)
                fprintf(stderr, "there are more: --after %llu\n",
                        (unsigned long long)listing->list.cursor);
        else if (listing->shown == 0)
                printf("no %s\n", listing->what);
        return CAIRN_CLI_OK;
}

void cairn_cli_list_entry(struct cairn_cli_listing *listing)
{
        if (listing->cli->json)
                fputs(listing->shown ? ", " : "", stdout);
        else if (listing->shown == 0)
                puts(listing->titles);
        listing->shown++;
}

void cairn_cli_json_holder(const struct cairn_holder *holder)
{
        printf("\"tenant\": %u, \"pid\": %u, \"client\": ", holder->tenant, holder->pid);
        cairn_cli_json_text(stdout, holder->client);
}

void cairn_cli_plain(const char *text, char *ret_text, size_t size)
{
        size_t at = 0;

        for (; text[at] != '\0' && at + 1 < size; at++)
                ret_text[at] = isprint((unsigned char)text[at]) ? text[at] : '?';
        ret_text[at] = '\0';
}
