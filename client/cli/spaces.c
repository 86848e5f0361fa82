// cairnctl spaces.
#include "client/cli/cli.h"

struct listing {
        const struct cairn_cli *cli;
        int count;
};

static const char *dtype_name(uint32_t dtype)
{
        static const char *const names[] = {"-", "f32", "f16", "bf16", "f8e4m3", "f8e5m2"};

        return dtype < 6 ? names[dtype] : "?";
}

static void print_row(const struct cairn_space_info *info)
{
        const struct cairn_space_config *c = &info->config;
        char ram[16], nvme[16], shape[48];

        cairn_cli_bytes((double)info->ram_bytes, ram);
        cairn_cli_bytes((double)info->nvme_bytes, nvme);
        if (c->kind == CAIRN_SPACE_OPAQUE)
                (void)snprintf(shape, sizeof(shape), "opaque");
        else
                (void)snprintf(shape, sizeof(shape), "%ux%ux%u/%u %s", c->layers, c->kv_heads,
                               c->k_dim, c->v_dim, dtype_name(c->dtype));
        printf("%5u %-28.28s %-22s %6u %8llu %10s %10s\n", info->id, c->model, shape,
               c->block_tokens, (unsigned long long)info->blocks, ram, nvme);
}

static void print_json(const struct cairn_space_info *info)
{
        const struct cairn_space_config *c = &info->config;
        char fingerprint[65];

        cairn_key_to_text(&info->fingerprint, fingerprint);
        printf("{\"space\": %u, \"fingerprint\": \"%s\", \"kind\": \"%s\", \"model\": ", info->id,
               fingerprint, c->kind == CAIRN_SPACE_OPAQUE ? "opaque" : "attention");
        cairn_cli_json_text(stdout, c->model);
        printf(", \"revision\": ");
        cairn_cli_json_text(stdout, c->revision);
        printf(", \"layout\": ");
        cairn_cli_json_text(stdout, c->layout);
        printf(", \"layers\": %u, \"kv_heads\": %u, \"k_dim\": %u, \"v_dim\": %u, "
               "\"v_prefix\": %u, "
               "\"dtype\": \"%s\", \"block_tokens\": %u, \"landmark_bits\": %u, "
               "\"tp_rank\": %u, \"tp_size\": %u, \"shared\": %s, \"block_bytes\": %llu, "
               "\"blocks\": %llu, "
               "\"ram_bytes\": %llu, \"nvme_bytes\": %llu}",
               c->layers, c->kv_heads, c->k_dim, c->v_dim, c->v_prefix, dtype_name(c->dtype),
               c->block_tokens, c->landmark_bits, c->tp_rank, c->tp_size,
               c->shared ? "true" : "false", (unsigned long long)info->block_bytes,
               (unsigned long long)info->blocks, (unsigned long long)info->ram_bytes,
               (unsigned long long)info->nvme_bytes);
}

static void on_space(void *arg, const struct cairn_space_info *info)
{
        struct listing *listing = arg;

        if (listing->cli->json) {
                fputs(listing->count ? ", " : "{\"spaces\": [", stdout);
                print_json(info);
        } else {
                if (listing->count == 0)
                        printf("%5s %-28s %-22s %6s %8s %10s %10s\n", "space", "model",
                               "layers x heads x dims", "tokens", "blocks", "ram", "nvme");
                print_row(info);
        }
        listing->count++;
}

int cairn_cli_spaces(struct cairn_cli *cli)
{
        struct listing listing = {.cli = cli};
        int status;

        status = cairn_list_spaces(cli->client, NULL, on_space, &listing);
        if (status != CAIRN_OK)
                return cairn_cli_fail(cli, status);
        if (cli->json)
                puts(listing.count ? "]}" : "{\"spaces\": []}");
        if (!cli->json && listing.count == 0)
                puts("no spaces yet: a worker makes one when it opens it");
        return CAIRN_CLI_OK;
}
