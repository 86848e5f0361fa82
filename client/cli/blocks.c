// cairnctl blocks.
#include <string.h>

#include "client/cli/listing.h"

static const char *tiers_name(const struct cairn_block_info *info)
{
        if (info->ram_bytes > 0)
                return info->nvme_bytes > 0 ? "ram+nvme" : "ram";
        return info->nvme_bytes > 0 ? "nvme" : "-";
}

static void print_row(const struct cairn_block_info *info, const char *key)
{
        char ram[16] = "-";
        char nvme[16] = "-";
        char expires[16] = "never";

        if (info->ram_bytes > 0)
                cairn_cli_bytes((double)info->ram_bytes, ram);
        if (info->nvme_bytes > 0)
                cairn_cli_bytes((double)info->nvme_bytes, nvme);
        if (info->expires_ms > 0)
                cairn_cli_duration((double)info->expires_ms, expires);
        printf("%5u %7u %10s %10s %5u %8u %8llu %8s %s\n", info->space, info->tenant, ram, nvme,
               info->holds, info->children, (unsigned long long)info->uses_since, expires, key);
}

static void print_json(const struct cairn_block_info *info, const char *key)
{
        static const struct cairn_key zero;
        char parent[65];

        cairn_key_to_text(&info->parent, parent);
        printf("{\"space\": %u, \"key\": \"%s\", \"parent\": ", info->space, key);
        if (memcmp(&info->parent, &zero, sizeof(zero)) == 0)
                fputs("null", stdout);
        else
                printf("\"%s\"", parent);
        printf(", \"tenant\": %u, \"tiers\": \"%s\", \"ram_bytes\": %llu, \"nvme_bytes\": %llu, "
               "\"holds\": %u, \"children\": %u, \"unwritten\": %s, \"uses_since\": %llu, "
               "\"generation\": %llu, \"expires_ms\": %llu}",
               info->tenant, tiers_name(info), (unsigned long long)info->ram_bytes,
               (unsigned long long)info->nvme_bytes, info->holds, info->children,
               info->unwritten ? "true" : "false", (unsigned long long)info->uses_since,
               (unsigned long long)info->generation, (unsigned long long)info->expires_ms);
}

static void on_block(void *arg, const struct cairn_block_info *info)
{
        struct cairn_cli_listing *listing = arg;
        char key[65];

        cairn_key_to_text(&info->key, key);
        cairn_cli_list_entry(listing);
        if (listing->cli->json)
                print_json(info, key);
        else
                print_row(info, key);
}

static int page(struct cairn_cli_listing *listing, uint64_t *ret_cursor)
{
        return cairn_list_blocks(listing->cli->client, NULL, &listing->list, on_block, listing,
                                 ret_cursor);
}

int cairn_cli_blocks(struct cairn_cli *cli)
{
        struct cairn_cli_listing listing = {
            .cli = cli,
            .what = "blocks",
            .titles = "space  tenant        ram       nvme holds children    rests  expires key",
        };

        return cairn_cli_list(&listing, page);
}
