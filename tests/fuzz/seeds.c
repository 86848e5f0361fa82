// Writes the seed inputs of every fuzz target into DIR/TARGET/: made by the code under test, so
// that they are valid in every version. usage: seeds DIR
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "proto/audit_record.h"
#include "proto/bytes.h"
#include "proto/codec.h"
#include "proto/status.h"
#include "storage/buffer.h"
#include "storage/catalog_record.h"

static const char *folder;

static void put(const char *target, const char *name, const void *bytes, size_t size)
{
        char path[4096];
        FILE *file;

        (void)snprintf(path, sizeof(path), "%s/%s", folder, target);
        (void)mkdir(path, 0777); // it may be there
        (void)snprintf(path, sizeof(path), "%s/%s/%s", folder, target, name);
        file = fopen(path, "wb");
        if (!file || fwrite(bytes, 1, size, file) != size || fclose(file) != 0) {
                perror(path);
                exit(1);
        }
}

// A message of `kind` as a seed of fuzz_message, and in a frame as one of fuzz_frame.
static void put_message(uint32_t kind, const void *message)
{
        struct cairn_frame_header header = {.kind = (uint16_t)kind, .id = kind, .status = 250};
        size_t size = cairn_codec_size(message);
        uint8_t *seed = calloc(1, size + 2);
        uint8_t *frame;
        uint8_t *payload;
        uint8_t *cut;
        size_t frame_size;

        if (!seed)
                abort();
        seed[0] = (uint8_t)kind;
        cairn_codec_pack(message, seed + 2);
        put("message", cairn_kind_name(kind), seed, size + 2);
        free(seed);
        if (cairn_codec_frame(&header, message, 16, &frame, &frame_size, &payload) != CAIRN_OK)
                abort();
        memset(payload, 'p', 16);
        cut = calloc(1, 2 * frame_size + 1);
        if (!cut)
                abort();
        cut[0] = 14; // requests, 8 bytes at once
        memcpy(cut + 1, frame, frame_size);
        memcpy(cut + 1 + frame_size, frame, frame_size);
        put("frame", cairn_kind_name(kind), cut, 2 * frame_size + 1);
        // As one of fuzz_socket: a record after the handshake.
        cut[0] = 1;
        cut[1] = (uint8_t)kind;
        cairn_put_u16(cut + 2, (uint16_t)size);
        cairn_put_u16(cut + 4, 16);
        memcpy(cut + 6, frame + CAIRN_FRAME_HEADER_BYTES, size + 16);
        put("socket", cairn_kind_name(kind), cut, 6 + size + 16);
        free(cut);
        free(frame);
}

static void put_messages(void)
{
        static uint8_t keys[96] = "three keys of thirty-two bytes each";
        Cairn__HelloRequest hello = CAIRN__HELLO_REQUEST__INIT;
        Cairn__OpenSpaceRequest open = CAIRN__OPEN_SPACE_REQUEST__INIT;
        Cairn__Space space_message = CAIRN__SPACE__INIT;
        Cairn__LookupRequest lookup = CAIRN__LOOKUP_REQUEST__INIT;
        Cairn__PutRequest block = CAIRN__PUT_REQUEST__INIT;
        Cairn__GetRequest get = CAIRN__GET_REQUEST__INIT;
        Cairn__RetrieveRequest retrieve = CAIRN__RETRIEVE_REQUEST__INIT;
        Cairn__Region region = CAIRN__REGION__INIT;
        Cairn__Budget budget = CAIRN__BUDGET__INIT;
        uint64_t numbers[4] = {0, 4, 100, 164};
        uint32_t layers[1] = {3};
        struct cairn_space space;

        hello.version_min = 1;
        hello.version_max = 1;
        hello.client = (char *)"seed";
        put_message(CAIRN_KIND_HELLO, &hello);
        cairn_space_defaults(&space);
        (void)snprintf(space.model, sizeof(space.model), "seed-model");
        space.layers = 2;
        space.kv_heads = 3;
        space.k_dim = space.v_dim = 64;
        cairn_codec_space_to(&space, &space_message);
        open.space = &space_message;
        put_message(CAIRN_KIND_OPEN_SPACE, &open);
        lookup.space = 1;
        lookup.keys = (ProtobufCBinaryData){sizeof(keys), keys};
        lookup.lease_ms = 500;
        put_message(CAIRN_KIND_LOOKUP, &lookup);
        region.arena = 1;
        region.bytes = 4096;
        block.space = 1;
        block.keys = lookup.keys;
        block.parents = lookup.keys;
        block.source = &region;
        block.offsets = numbers;
        block.n_offsets = 3;
        put_message(CAIRN_KIND_PUT, &block);
        get.space = 1;
        get.keys = lookup.keys;
        get.lease = 7;
        get.layer_count = 1;
        get.destination = &region;
        put_message(CAIRN_KIND_GET, &get);
        budget.share = 0.03125;
        budget.cap = 4096;
        retrieve.contexts = numbers + 1;
        retrieve.n_contexts = 1;
        retrieve.layers = layers;
        retrieve.n_layers = 1;
        retrieve.steps = 1;
        retrieve.query_heads = 8;
        retrieve.queries = &region;
        retrieve.budget = &budget;
        retrieve.excluded = numbers;
        retrieve.n_excluded = 4;
        retrieve.result = &region;
        put_message(CAIRN_KIND_RETRIEVE, &retrieve);
        put_message(CAIRN_KIND_ATTEND, &retrieve);
}

static void put_result(void)
{
        uint8_t shape[33] = {0};
        const uint32_t numbers[8] = {2, 1, 8, 32, 128, 128, 128, 2};

        memcpy(shape, numbers, sizeof(numbers));
        for (uint8_t flags = 0; flags < 8; flags++) {
                char name[8];

                shape[32] = flags;
                (void)snprintf(name, sizeof(name), "%d", flags);
                put("result", name, shape, sizeof(shape));
        }
}

static void put_audit(void)
{
        uint8_t log[3 * CAIRN_AUDIT_RECORD_BYTES];
        struct cairn_audit_end end = {0};
        struct cairn_audit_record record = {.action = CAIRN_AUDIT_EVICT,
                                            .reason = CAIRN_AUDIT_CAPACITY,
                                            .time_ms = 1700000000000,
                                            .layer = CAIRN_AUDIT_ALL,
                                            .head = CAIRN_AUDIT_ALL,
                                            .policy = "s3fifo"};

        for (size_t i = 0; i < 3; i++)
                cairn_audit_append(&end, &record, log + i * CAIRN_AUDIT_RECORD_BYTES);
        put("audit", "three", log, sizeof(log));
        // A file from 0 on with two of them, and the third in the table.
        uint8_t files[4 + sizeof(log)] = {2 << 1 | 1, 0, 0, 2 * CAIRN_AUDIT_RECORD_BYTES >> 8};

        memcpy(files + 4, log, sizeof(log));
        put("audit_files", "whole", files, sizeof(files));
}

static void put_storage(void)
{
        _Alignas(64) static uint8_t bytes[1 + CAIRN_SLAB_HEADER_BYTES];
        _Alignas(64) static uint8_t header[CAIRN_SLAB_HEADER_BYTES];
        struct cairn_slab_header slab = {.slab = 3,
                                         .slots = 16,
                                         .space_id = 1,
                                         .shape = {4, 512, 0},
                                         .description = "about",
                                         .description_bytes = 5};
        struct cairn_record_meta meta = {.version = CAIRN_FORMAT_VERSION, .openings = 2};
        struct cairn_catalog_block block = {.generation = 1, .slab = 2, .slot = 3, .space_id = 1};
        struct cairn_catalog_space space = {
            .id = 1, .description = "about", .description_bytes = 5, .shape = {4, 512, 0}};
        struct cairn_part_identity identity = {.generation = 9};
        struct cairn_checksum table;
        struct cairn_layout layout;

        (void)cairn_layout_of(&slab.shape, &layout); // a shape that is one
        cairn_slab_header_write(&slab, layout.slot_bytes, header);
        memcpy(bytes + 1, header, sizeof(header));
        put("slab", "slab", bytes, sizeof(bytes));
        cairn_part_prepare(&layout, 0, header);
        for (uint32_t layer = 0; layer < 4; layer++)
                cairn_checksum_of(
                    cairn_part_layer(&layout, 0, header, layer), layout.layer_bytes[0],
                    (struct cairn_checksum *)(void *)cairn_part_checksum(header, layer));
        cairn_part_seal(&layout, 0, &identity, header, &table);
        bytes[0] = 1;
        memcpy(bytes + 1, header, sizeof(header));
        put("slab", "part", bytes, sizeof(bytes));
        bytes[0] = 129; // 129 % 3 == 0: meta, repaired
        put("catalog", "meta", bytes, 1 + cairn_record_meta_write(&meta, bytes + 1));
        bytes[0] = 130;
        cairn_record_key_write(1, &block.key, bytes + 1);
        put("catalog", "block", bytes,
            1 + CAIRN_RECORD_KEY_BYTES +
                cairn_record_block_write(&block, bytes + 1 + CAIRN_RECORD_KEY_BYTES));
        bytes[0] = 128;
        put("catalog", "space", bytes, 1 + cairn_record_space_write(&space, bytes + 1));
}

// Searches of fuzz_query: the kind's place there, the message's size, the message, queries.
static void put_query(uint8_t kind, const char *name, const void *message)
{
        uint8_t bytes[1024] = {kind};
        size_t size = cairn_codec_size(message);
        float queries[2 * 16];

        for (size_t i = 0; i < 32; i++)
                queries[i] = (float)i / 8 - 2;
        cairn_put_u16(bytes + 1, (uint16_t)size);
        cairn_codec_pack(message, bytes + 3);
        memcpy(bytes + 3 + size, queries, sizeof(queries));
        put("query", name, bytes, 3 + size + sizeof(queries));
}

static void put_queries(void)
{
        Cairn__RetrieveRequest retrieve = CAIRN__RETRIEVE_REQUEST__INIT;
        Cairn__RetainRequest retain = CAIRN__RETAIN_REQUEST__INIT;
        Cairn__PlanRequest plan = CAIRN__PLAN_REQUEST__INIT;
        Cairn__FetchRowsRequest fetch = CAIRN__FETCH_ROWS_REQUEST__INIT;
        Cairn__Budget budget = CAIRN__BUDGET__INIT;
        Cairn__Region queries = CAIRN__REGION__INIT;
        Cairn__Proxies proxies = CAIRN__PROXIES__INIT;
        uint64_t context = 1;
        uint64_t last[2] = {14, 16};
        uint32_t layer = 0, counts = 2;
        uint32_t positions[2] = {3, 9};

        queries.bytes = 2 * 16 * sizeof(float);
        budget.count = 4;
        retrieve.contexts = &context;
        retrieve.n_contexts = 1;
        retrieve.layers = &layer;
        retrieve.n_layers = 1;
        retrieve.steps = 1;
        retrieve.query_heads = 2;
        retrieve.queries = &queries;
        retrieve.budget = &budget;
        retrieve.excluded = last;
        retrieve.n_excluded = 2;
        retrieve.rows = retrieve.rest = true;
        put_query(0, "Retrieve", &retrieve);
        put_query(1, "Attend", &retrieve);
        proxies.positions = last;
        proxies.n_positions = 2;
        proxies.query_heads = 1;
        proxies.queries = &queries;
        retain.proxies = plan.proxies = &proxies;
        put_query(2, "Retain", &retain);
        put_query(3, "Plan", &plan);
        fetch.counts = &counts;
        fetch.n_counts = 1;
        fetch.positions = positions;
        fetch.n_positions = 2;
        put_query(5, "FetchRows", &fetch);
        counts = 0;
        fetch.n_positions = 0;
        put_query(5, "FetchRows of none", &fetch);
}

static void put_text(void)
{
        static const char config[] =
            "; a comment\n[cairnd]\nsocket = /tmp/s\nram_bytes = 64MiB\nnvme_bytes = 5%\nack = "
            "disk\n"
            "commit_delay = 250us\nscorers = auto\nlog_level = debug\nforce_buffered = yes\n";
        static const char misspelt[] = "ram_byte = 1.5G\nsocket = x\nsocket = y\n";
        // Of page 5 `upper`, of page 1 the transaction: page u16, byte u16, value u16.
        static const uint8_t pages[] = {5, 0, 14, 0, 0xf0, 0xff, 1, 0, 144, 0, 0, 0};
        static const char key[] =
            "00112233445566778899aabbccddeeff00112233445566778899AABBCCDDEEFF";

        put("config", "many", config, sizeof(config) - 1);
        put("config", "misspelt", misspelt, sizeof(misspelt) - 1);
        put("pages", "bounds and meta", pages, sizeof(pages));
        put("key", "hex", key, sizeof(key) - 1);
        put("key", "fields", "\3saltadapter", 12);
}

int main(int argc, char **argv)
{
        if (argc != 2) {
                (void)fprintf(stderr, "usage: seeds DIR\n");
                return 2;
        }
        folder = argv[1];
        (void)mkdir(folder, 0777); // it may be there
        put_messages();
        put_result();
        put_audit();
        put_storage();
        put_text();
        put_queries();
        return 0;
}
