// cairnctl contexts and leases: what workers hold.
#include "client/cli/listing.h"

static void on_context(void *arg, const struct cairn_context_info *info)
{
        struct cairn_cli_listing *listing = arg;
        char client[33];

        cairn_cli_list_entry(listing);
        if (listing->cli->json) {
                printf("{\"context\": %llu, \"space\": %u, ", (unsigned long long)info->context,
                       info->space);
                cairn_cli_json_holder(&info->holder);
                printf(", \"tokens\": %llu, \"tail_tokens\": %llu, \"blocks\": %u, \"busy\": %s}",
                       (unsigned long long)info->tokens, (unsigned long long)info->tail_tokens,
                       info->blocks, info->busy ? "true" : "false");
                return;
        }
        cairn_cli_plain(info->holder.client, client, sizeof(client));
        printf("%7llu %5u %7u %7u %9llu %9llu %7u %-4s %s\n", (unsigned long long)info->context,
               info->space, info->holder.tenant, info->holder.pid, (unsigned long long)info->tokens,
               (unsigned long long)info->tail_tokens, info->blocks, info->busy ? "yes" : "no",
               client);
}

static int contexts_page(struct cairn_cli_listing *listing, uint64_t *ret_cursor)
{
        return cairn_list_contexts(listing->cli->client, NULL, &listing->list, on_context, listing,
                                   ret_cursor);
}

int cairn_cli_contexts(struct cairn_cli *cli)
{
        struct cairn_cli_listing listing = {
            .cli = cli,
            .what = "contexts",
            .titles = "context space  tenant     pid    tokens  appended  blocks busy client",
        };

        return cairn_cli_list(&listing, contexts_page);
}

static void on_lease(void *arg, const struct cairn_lease_info *info)
{
        struct cairn_cli_listing *listing = arg;
        char client[33];
        char left[16];
        char key[65];

        cairn_cli_list_entry(listing);
        cairn_key_to_text(&info->first_key, key);
        if (listing->cli->json) {
                printf("{\"lease\": %llu, ", (unsigned long long)info->lease);
                cairn_cli_json_holder(&info->holder);
                printf(", \"blocks\": %u, \"left_ms\": %llu, \"first_key\": \"%s\"}", info->blocks,
                       (unsigned long long)info->left_ms, key);
                return;
        }
        cairn_cli_duration((double)info->left_ms, left);
        cairn_cli_plain(info->holder.client, client, sizeof(client));
        printf("%7llu %7u %7u %7u %9s %.16s.. %s\n", (unsigned long long)info->lease,
               info->holder.tenant, info->holder.pid, info->blocks, left, key, client);
}

static int leases_page(struct cairn_cli_listing *listing, uint64_t *ret_cursor)
{
        return cairn_list_leases(listing->cli->client, NULL, &listing->list, on_lease, listing,
                                 ret_cursor);
}

int cairn_cli_leases(struct cairn_cli *cli)
{
        struct cairn_cli_listing listing = {
            .cli = cli,
            .what = "leases",
            .titles = "  lease  tenant     pid  blocks  ends in first key          client",
        };

        return cairn_cli_list(&listing, leases_page);
}
