// Views from C against a real daemon: `cairn_integration_views SOCKET [ROUNDS]`. One client puts
// blocks and churns, another reads them in place, by blocking and by asynchronous calls, whole and
// layer by layer; every byte that was read is checked, and whether the view was right about it.
// Prints one line; exits 1 after saying what was wrong.
#include <dirent.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cairn/cairn.h"

enum {
        LAYERS = 4,
        LAYER_BYTES = 2 * 16 * (32 + 32) * 2, // KV heads, tokens, dims, f16
        BLOCK_BYTES = LAYERS * LAYER_BYTES,
        BLOCKS = 64
};

struct worker {
        struct cairn_client *client;
        uint32_t space;
};

struct counts {
        uint64_t right;   // valid, and the bytes are the block's
        uint64_t expired; // not valid
};

static int fail(const struct worker *worker, const char *what, int status)
{
        fprintf(stderr, "%s: %s: %s\n", what, cairn_error_name(status),
                cairn_client_error(worker->client));
        return 1;
}

static uint8_t pattern(uint32_t block, uint32_t at)
{
        return (uint8_t)(block * 37 + at * 31 + (at >> 8) * 7);
}

static int connect_worker(const char *socket_path, struct worker *ret_worker)
{
        struct cairn_client_options options = {.socket_path = socket_path};
        struct cairn_space_config config;
        char text[640];
        int status = cairn_client_create(&options, &ret_worker->client, text, sizeof(text));

        if (status != CAIRN_OK) {
                fprintf(stderr, "connect: %s\n", text);
                return 1;
        }
        cairn_space_config_init(&config);
        (void)snprintf(config.model, sizeof(config.model), "views-c");
        config.layers = LAYERS;
        config.kv_heads = 2;
        config.k_dim = config.v_dim = 32;
        config.block_tokens = config.run_tokens = 16;
        config.landmark_bits = config.value_bits = 0;
        config.k_codec = config.v_codec = 0;
        config.outliers = 0;
        status = cairn_client_open_space(ret_worker->client, &config, &ret_worker->space);
        return status == CAIRN_OK ? 0 : fail(ret_worker, "open", status);
}

static void name(uint32_t round, uint32_t block, struct cairn_key *ret_key)
{
        memset(ret_key, 0, sizeof(*ret_key));
        memcpy(ret_key->bytes, &round, sizeof(round));
        memcpy(ret_key->bytes + 8, &block, sizeof(block));
        ret_key->bytes[31] = 1;
}

static int put_all(const struct worker *worker, uint32_t round, struct cairn_key *ret_keys)
{
        static uint8_t bytes[BLOCKS * BLOCK_BYTES];
        struct cairn_put_args args = {.space = worker->space,
                                      .keys = ret_keys,
                                      .count = BLOCKS,
                                      .blocks = bytes,
                                      .ack = CAIRN_PUT_ACK_DISK};
        int status;

        for (uint32_t i = 0; i < BLOCKS; i++) {
                name(round, i, &ret_keys[i]);
                for (uint32_t at = 0; at < BLOCK_BYTES; at++)
                        bytes[i * BLOCK_BYTES + at] = pattern(i, at);
        }
        status = cairn_put(worker->client, NULL, &args, NULL);
        return status == CAIRN_OK ? 0 : fail(worker, "put", status);
}

// Reads first, and asks then: other bytes than were put must not be called valid.
static int check_view(const struct cairn_view *view, uint32_t block, uint32_t layer,
                      struct counts *counts)
{
        const uint8_t *bytes = view->bytes;
        bool same = true;

        for (uint64_t i = 0; i < view->size_bytes; i++)
                same = same && bytes[i] == pattern(block, layer * LAYER_BYTES + (uint32_t)i);
        if (!cairn_view_valid(view)) {
                counts->expired++;
                return 0;
        }
        counts->right++;
        if (same)
                return 0;
        fprintf(stderr, "block %u: other bytes, and the view says that they are the block's\n",
                block);
        return 1;
}

static int lease_all(const struct worker *worker, const struct cairn_key *keys, uint32_t lease_ms,
                     struct cairn_lease *ret_lease)
{
        for (size_t found, i = 0; i < 2; i++) {
                int status = cairn_lookup(worker->client, NULL, worker->space, keys, BLOCKS,
                                          lease_ms, &found, ret_lease);

                if (status != CAIRN_OK || found != BLOCKS)
                        return fail(worker, "lookup", status != CAIRN_OK ? status : CAIRN_ENOENT);
                if (i == 0)
                        (void)cairn_release(worker->client, NULL, ret_lease); // the next is used
        }
        return 0;
}

static void on_done(struct cairn_call *call, int status)
{
        *(int *)call->arg = status < 0 ? status : 1;
}

// All layers, one call a layer, all under way at once.
static int read_layers(const struct worker *worker, const struct cairn_key *keys,
                       struct cairn_lease lease, struct counts *counts)
{
        static struct cairn_view views[LAYERS][BLOCKS];
        static int statuses[LAYERS][BLOCKS];
        struct cairn_call calls[LAYERS];
        int done[LAYERS] = {0}, bad = 0;

        for (uint32_t layer = 0; layer < LAYERS; layer++) {
                struct cairn_get_args args = {.space = worker->space,
                                              .keys = keys,
                                              .count = BLOCKS,
                                              .lease = lease,
                                              .layer_first = layer,
                                              .layer_count = 1};
                int status;

                calls[layer] = (struct cairn_call){.on_done = on_done, .arg = &done[layer]};
                status = cairn_get_views(worker->client, &calls[layer], &args, views[layer],
                                         statuses[layer]);
                if (status != CAIRN_OK)
                        return fail(worker, "views", status);
        }
        for (uint32_t layer = 0; layer < LAYERS; layer++) {
                while (done[layer] == 0)
                        (void)cairn_client_poll(worker->client, -1); // its calls say how it went
                if (done[layer] < 0)
                        return fail(worker, "views of a layer", done[layer]);
                for (uint32_t i = 0; i < BLOCKS; i++) {
                        if (statuses[layer][i] != CAIRN_OK)
                                return fail(worker, "a view", statuses[layer][i]);
                        bad |= check_view(&views[layer][i], i, layer, counts);
                        cairn_view_release(&views[layer][i]);
                }
        }
        return bad;
}

static int read_blocks(const struct worker *reader, const struct worker *writer,
                       const struct cairn_key *keys, uint32_t round, bool overtake,
                       struct counts *counts)
{
        static struct cairn_view views[BLOCKS];
        static struct cairn_key others[BLOCKS];
        struct cairn_get_args args = {.space = reader->space, .keys = keys, .count = BLOCKS};
        int bad = lease_all(reader, keys, 60 * 1000, &args.lease), status;

        if (bad)
                return bad;
        bad = read_layers(reader, keys, args.lease, counts);
        status = bad ? CAIRN_OK : cairn_get_views(reader->client, NULL, &args, views, NULL);
        if (bad || status != CAIRN_OK)
                return bad ? bad : fail(reader, "views", status);
        if (overtake) { // the lease goes, and RAM is used anew while the views are read
                (void)cairn_release(reader->client, NULL, &args.lease);
                for (uint32_t i = 0; i < 24 && !bad; i++)
                        bad = put_all(writer, 1000 + round * 100 + i, others);
        }
        for (uint32_t i = 0; i < BLOCKS; i++) {
                bad |= check_view(&views[i], i, 0, counts);
                cairn_view_release(&views[i]);
        }
        if (!overtake)
                (void)cairn_release(reader->client, NULL, &args.lease);
        return bad;
}

static int descriptors(void)
{
        DIR *folder = opendir("/proc/self/fd");
        int count = 0;

        while (folder && readdir(folder))
                count++;
        if (folder)
                (void)closedir(folder);
        return count;
}

int main(int argc, char **argv)
{
        uint32_t rounds = argc > 2 ? (uint32_t)atoi(argv[2]) : 4;
        struct cairn_key keys[BLOCKS];
        struct worker reader = {0}, writer = {0};
        struct counts kept = {0}, overtaken = {0};
        int before = descriptors();
        int bad;

        if (argc < 2) {
                fprintf(stderr, "usage: %s SOCKET [ROUNDS]\n", argv[0]);
                return 2;
        }
        bad = connect_worker(argv[1], &reader) || connect_worker(argv[1], &writer);
        for (uint32_t round = 0; round < rounds && !bad; round++) {
                bad = put_all(&writer, round, keys) ||
                      read_blocks(&reader, &writer, keys, round, false, &kept) ||
                      read_blocks(&reader, &writer, keys, round, true, &overtaken);
        }
        cairn_client_destroy(reader.client);
        cairn_client_destroy(writer.client);
        if (!bad && kept.expired > 0) {
                fprintf(stderr, "%llu leased views ended early\n",
                        (unsigned long long)kept.expired);
                bad = 1;
        }
        if (!bad && descriptors() != before) {
                fprintf(stderr, "%d descriptors are left over\n", descriptors() - before);
                bad = 1;
        }
        if (!bad)
                printf("%llu views read, %llu more after their lease, %llu of which had expired\n",
                       (unsigned long long)kept.right,
                       (unsigned long long)(overtaken.right + overtaken.expired),
                       (unsigned long long)overtaken.expired);
        return bad;
}
