// Fuzzes the messages of the wire, every kind: bounded memory, and what unpacks packs again to the
// same message. Spaces, keys and result layouts inside them are read as the daemon reads them.
#include <stdlib.h>
#include <string.h>

#include "proto/codec.h"
#include "proto/result.h"
#include "proto/status.h"
#include "tests/fuzz/fuzz.h"

static void check_space(const Cairn__Space *message)
{
        struct cairn_space space;
        struct cairn_space again;
        struct cairn_key key;
        struct cairn_key same;
        Cairn__Space back = CAIRN__SPACE__INIT;
        char text[CAIRN_TEXT_BYTES_MAX];

        if (!message || cairn_codec_space_from(message, &space) != CAIRN_OK)
                return;
        cairn_codec_space_to(&space, &back);
        FUZZ_CHECK(cairn_codec_space_from(&back, &again) == CAIRN_OK);
        cairn_space_fingerprint(&space, &key);
        cairn_space_fingerprint(&again, &same);
        FUZZ_CHECK(cairn_key_equal(&key, &same));
        if (cairn_space_check(&space, text, sizeof(text)) != CAIRN_OK)
                return;
        FUZZ_CHECK(cairn_space_block_bytes(&space) > 0);
        FUZZ_CHECK(cairn_space_block_bytes(&space) <= CAIRN_BLOCK_BYTES_MAX);
        FUZZ_CHECK(cairn_space_layer_bytes(&space) <= cairn_space_block_bytes(&space));
}

static void check_keys(const ProtobufCBinaryData *field)
{
        const struct cairn_key *keys;
        size_t count;

        if (cairn_codec_keys(field, &keys, &count) != CAIRN_OK)
                return;
        FUZZ_CHECK(count <= CAIRN_KEYS_MAX && count * CAIRN_KEY_BYTES == field->len);
}

static void check_inside(uint32_t kind, bool reply, const void *message)
{
        if (reply)
                return;
        if (kind == CAIRN_KIND_OPEN_SPACE)
                check_space(((const Cairn__OpenSpaceRequest *)message)->space);
        if (kind == CAIRN_KIND_LOOKUP)
                check_keys(&((const Cairn__LookupRequest *)message)->keys);
        if (kind == CAIRN_KIND_PUT)
                check_keys(&((const Cairn__PutRequest *)message)->keys);
        if (kind == CAIRN_KIND_GET)
                check_keys(&((const Cairn__GetRequest *)message)->keys);
}

static size_t repack(const void *message, uint8_t *bytes, size_t size_max)
{
        size_t size = cairn_codec_size(message);

        if (size > size_max)
                return 0; // fields of zero bytes may grow a little: not what this target is about
        cairn_codec_pack(message, bytes);
        return size;
}

// Bytes 0 and 1: kind, and whether it is a reply (1) or an error reply (2).
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
        static uint8_t first[CAIRN_MESSAGE_BYTES_MAX];
        static uint8_t second[CAIRN_MESSAGE_BYTES_MAX];
        struct cairn_codec_arena arena;
        void *message;
        uint32_t kind;
        bool reply;
        int32_t error;
        size_t packed;
        int status;

        if (size < 2)
                return 0;
        kind = bytes[0];
        reply = bytes[1] % 3 != 0;
        error = bytes[1] % 3 == 2 ? CAIRN_EIO : CAIRN_OK;
        cairn_codec_arena_init(&arena, CAIRN_DECODE_BYTES_MAX);
        status = cairn_codec_unpack(kind, reply, error, bytes + 2, size - 2, &arena, &message);
        FUZZ_CHECK(arena.used_bytes <= CAIRN_DECODE_BYTES_MAX);
        FUZZ_CHECK(status == CAIRN_OK || status == CAIRN_EPROTO || status == CAIRN_ENOMEM);
        if (status == CAIRN_OK) {
                check_inside(kind, reply, message);
                packed = repack(message, first, sizeof(first));
                cairn_codec_arena_finish(&arena);
                // Unknown fields of number 0 are let in and packed in a way that is not: those end
                // here.
                if (packed > 0 && cairn_codec_unpack(kind, reply, error, first, packed, &arena,
                                                     &message) == CAIRN_OK) {
                        FUZZ_CHECK(repack(message, second, sizeof(second)) == packed);
                        FUZZ_CHECK(memcmp(first, second, packed) == 0);
                }
        }
        cairn_codec_arena_finish(&arena);
        return 0;
}
