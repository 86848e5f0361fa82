// Writes the seed inputs of every fuzz target into DIR/TARGET/: made by the code under test, so
// that they are valid in every version. usage: seeds DIR
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "proto/audit_record.h"
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

static void put_text(void)
{
        static const char config[] =
            "; a comment\n[cairnd]\nsocket = /tmp/s\nram_bytes = 64MiB\nnvme_bytes = 5%\nack = "
            "disk\n"
            "commit_delay = 250us\nscorers = auto\nlog_level = debug\nforce_buffered = yes\n";
        static const char misspelt[] = "ram_byte = 1.5G\nsocket = x\nsocket = y\n";
        static const char key[] =
            "00112233445566778899aabbccddeeff00112233445566778899AABBCCDDEEFF";

        put("config", "many", config, sizeof(config) - 1);
        put("config", "misspelt", misspelt, sizeof(misspelt) - 1);
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
        return 0;
}
