// cairnctl quota and tenants.
#include <stdlib.h>
#include <string.h>

#include "client/cli/cli.h"
#include "cairn/tenant.h"

struct listing {
        const struct cairn_cli *cli;
        const char *only; // NULL: all
        uint32_t shown;
};

static void limit_text(uint64_t bytes, char ret_text[16])
{
        if (bytes == 0)
                (void)snprintf(ret_text, 16, "-");
        else
                cairn_cli_bytes((double)bytes, ret_text);
}

static void print_row(const struct cairn_tenant_info *info)
{
        char used[2][16], limits[4][16];
        const uint64_t numbers[] = {info->quota.ram_bytes, info->quota.nvme_bytes,
                                    info->quota.ram_guaranteed_bytes,
                                    info->quota.nvme_guaranteed_bytes};

        cairn_cli_bytes((double)info->ram_bytes, used[0]);
        cairn_cli_bytes((double)info->nvme_bytes, used[1]);
        for (int i = 0; i < 4; i++)
                limit_text(numbers[i], limits[i]);
        printf("%-20s %-13s %10s %10s %10s %10s %10s %10s %9llu %8llu %s\n", info->name,
               info->source, used[0], limits[0], limits[2], used[1], limits[1], limits[3],
               (unsigned long long)info->blocks, (unsigned long long)info->refused,
               info->held ? "under hold" : "");
}

static void print_json(const struct cairn_tenant_info *info)
{
        fputs("{\"tenant\": ", stdout);
        cairn_cli_json_text(stdout, info->name);
        if (info->tenant != UINT32_MAX)
                printf(", \"number\": %u, \"ram_bytes\": %llu, \"nvme_bytes\": %llu, "
                       "\"blocks\": %llu, \"evicted\": %llu, \"refused\": %llu, "
                       "\"connections\": %u, \"held\": %s",
                       info->tenant, (unsigned long long)info->ram_bytes,
                       (unsigned long long)info->nvme_bytes, (unsigned long long)info->blocks,
                       (unsigned long long)info->evicted, (unsigned long long)info->refused,
                       info->connections, info->held ? "true" : "false");
        fputs(", \"source\": ", stdout);
        cairn_cli_json_text(stdout, info->source);
        printf(", \"ram_limit_bytes\": %llu, \"nvme_limit_bytes\": %llu, "
               "\"ram_guaranteed_bytes\": %llu, \"nvme_guaranteed_bytes\": %llu}",
               (unsigned long long)info->quota.ram_bytes,
               (unsigned long long)info->quota.nvme_bytes,
               (unsigned long long)info->quota.ram_guaranteed_bytes,
               (unsigned long long)info->quota.nvme_guaranteed_bytes);
}

static void on_tenant(void *arg, const struct cairn_tenant_info *info)
{
        struct listing *listing = arg;
        char number[16];

        (void)snprintf(number, sizeof(number), "%u", info->tenant);
        if (listing->only && strcmp(listing->only, info->name) != 0 &&
            (info->tenant == UINT32_MAX || strcmp(listing->only, number) != 0))
                return;
        if (listing->cli->json) {
                fputs(listing->shown ? ", " : "", stdout);
                print_json(info);
        } else {
                if (listing->shown == 0)
                        printf("%-20s %-13s %10s %10s %10s %10s %10s %10s %9s %8s\n", "tenant",
                               "quota by", "ram", "limit", "guarantee", "nvme", "limit",
                               "guarantee", "blocks", "refused");
                print_row(info);
        }
        listing->shown++;
}

static int show(struct cairn_cli *cli, const char *only)
{
        struct listing listing = {.cli = cli, .only = only};
        int status;

        if (cli->json)
                fputs("{\"tenants\": [", stdout);
        status = cairn_list_tenants(cli->client, NULL, on_tenant, &listing);
        if (cli->json)
                puts("]}");
        if (status != CAIRN_OK)
                return cairn_cli_fail(cli, status);
        if (only && listing.shown == 0) {
                fprintf(stderr, "cairnctl: tenant %s has no blocks, no quota, no connection\n",
                        only);
                return CAIRN_CLI_FAILED;
        }
        return CAIRN_CLI_OK;
}

int cairn_cli_tenants(struct cairn_cli *cli)
{
        return show(cli, NULL);
}

// Takes what was given; the others stay. Returns an exit code.
static int parse_limits(const struct cairn_cli *cli, struct cairn_quota_limits *ret_limits,
                        uint32_t *ret_keep)
{
        const struct {
                enum cairn_cli_option option;
                const char *name;
                uint64_t *bytes;
                uint32_t keep;
        } numbers[] = {
            {CAIRN_CLI_RAM, "ram", &ret_limits->ram_bytes, CAIRN_QUOTA_KEEP_RAM},
            {CAIRN_CLI_NVME, "nvme", &ret_limits->nvme_bytes, CAIRN_QUOTA_KEEP_NVME},
            {CAIRN_CLI_RAM_GUARANTEED, "ram-guaranteed", &ret_limits->ram_guaranteed_bytes,
             CAIRN_QUOTA_KEEP_RAM_GUARANTEED},
            {CAIRN_CLI_NVME_GUARANTEED, "nvme-guaranteed", &ret_limits->nvme_guaranteed_bytes,
             CAIRN_QUOTA_KEEP_NVME_GUARANTEED},
        };

        *ret_limits = (struct cairn_quota_limits){0};
        *ret_keep = 0;
        for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
                const char *text = cli->options[numbers[i].option];

                if (!text) {
                        *ret_keep |= numbers[i].keep;
                        continue;
                }
                if (strcmp(text, "none") != 0 && strcmp(text, "0") != 0 &&
                    cairn_cli_parse_bytes(text, numbers[i].bytes) != CAIRN_CLI_OK) {
                        fprintf(stderr,
                                "cairnctl quota: --%s %s: bytes like 4GiB, or none, please\n",
                                numbers[i].name, text);
                        return CAIRN_CLI_USAGE;
                }
        }
        return CAIRN_CLI_OK;
}

int cairn_cli_quota(struct cairn_cli *cli)
{
        const char *tenant = cli->argc > 0 ? cli->argv[0] : NULL;
        bool reset = cli->options[CAIRN_CLI_RESET] != NULL;
        struct cairn_quota_limits limits;
        uint32_t keep;
        bool change;
        int status;
        int code = parse_limits(cli, &limits, &keep);

        if (code != CAIRN_CLI_OK)
                return code;
        change = keep != (CAIRN_QUOTA_KEEP_RAM | CAIRN_QUOTA_KEEP_NVME |
                          CAIRN_QUOTA_KEEP_RAM_GUARANTEED | CAIRN_QUOTA_KEEP_NVME_GUARANTEED);
        if ((change || reset) && !tenant) {
                fputs("cairnctl quota: whose? name a tenant, a uid, or default\n", stderr);
                return CAIRN_CLI_USAGE;
        }
        if (change && reset) {
                fputs("cairnctl quota: --reset takes no numbers\n", stderr);
                return CAIRN_CLI_USAGE;
        }
        if (!change && !reset)
                return show(cli, tenant);
        status = reset ? cairn_reset_quota(cli->client, NULL, tenant, NULL)
                       : cairn_set_quota(cli->client, NULL, tenant, &limits, keep, NULL);
        return status == CAIRN_OK ? show(cli, tenant) : cairn_cli_fail(cli, status);
}
