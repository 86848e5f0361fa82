// Messages: every kind packs and unpacks; hostile bytes cost bounded memory.
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "proto/codec.h"
#include "proto/status.h"

Test(codec, request_round_trip_through_a_frame)
{
        Cairn__LookupRequest request = CAIRN__LOOKUP_REQUEST__INIT;
        struct cairn_frame_header header = {.kind = CAIRN_KIND_LOOKUP, .id = 77};
        struct cairn_frame_parser parser;
        struct cairn_codec_arena arena;
        struct cairn_frame frame;
        const struct cairn_key *keys;
        uint8_t raw[96];
        uint8_t *bytes;
        uint8_t *payload;
        size_t size;
        size_t used;
        size_t count;
        void *message;

        for (size_t i = 0; i < sizeof(raw); i++)
                raw[i] = (uint8_t)i;
        request.space = 3;
        request.keys.data = raw;
        request.keys.len = sizeof(raw);
        request.lease_ms = 500;
        cr_assert_eq(cairn_codec_frame(&header, &request, 5, &bytes, &size, &payload), CAIRN_OK);
        memcpy(payload, "12345", 5);
        cairn_frame_parser_init(&parser, false);
        cr_assert_eq(cairn_frame_parser_feed(&parser, bytes, size, &used, &frame), 1);
        cairn_codec_arena_init(&arena, CAIRN_DECODE_BYTES_MAX);
        cr_assert_eq(cairn_codec_unpack(frame.header.kind, false, 0, frame.message,
                                        frame.header.message_bytes, &arena, &message),
                     CAIRN_OK);
        Cairn__LookupRequest *back = message;
        cr_assert_eq(back->space, 3);
        cr_assert_eq(back->lease_ms, 500);
        cr_assert_eq(cairn_codec_keys(&back->keys, &keys, &count), CAIRN_OK);
        cr_assert_eq(count, 3);
        cr_assert_arr_eq(keys, raw, sizeof(raw));
        cr_assert_arr_eq(frame.payload, "12345", 5);
        cairn_codec_arena_finish(&arena);
        cairn_frame_parser_finish(&parser);
        free(bytes);
}

Test(codec, every_known_kind_unpacks_an_empty_message)
{
        int known = 0;

        for (uint32_t kind = 0; kind < CAIRN_KIND_COUNT + 4u; kind++) {
                struct cairn_codec_arena arena;
                void *message;
                int expected = cairn_kind_known(kind) ? CAIRN_OK : CAIRN_EPROTO;

                known += cairn_kind_known(kind);
                cairn_codec_arena_init(&arena, CAIRN_DECODE_BYTES_MAX);
                cr_assert_eq(cairn_codec_unpack(kind, false, 0, NULL, 0, &arena, &message),
                             expected);
                cr_assert_eq(cairn_codec_unpack(kind, true, 0, NULL, 0, &arena, &message),
                             expected);
                cr_assert_eq(cairn_codec_unpack(kind, true, CAIRN_EIO, NULL, 0, &arena, &message),
                             expected);
                cairn_codec_arena_finish(&arena);
        }
        cr_assert_geq(known, 36);
}

Test(codec, case_18_empty_repeated_entries_are_capped)
{
        // Field 1 of ListSpacesReply, length 0, again and again: two bytes each on the wire, a
        // struct each in memory.
        static uint8_t bytes[CAIRN_MESSAGE_BYTES_MAX];
        struct cairn_codec_arena arena;
        void *message;

        for (size_t i = 0; i + 1 < sizeof(bytes); i += 2) {
                bytes[i] = 0x0a;
                bytes[i + 1] = 0;
        }
        cairn_codec_arena_init(&arena, CAIRN_DECODE_BYTES_MAX);
        cr_assert_eq(cairn_codec_unpack(CAIRN_KIND_LIST_SPACES, true, 0, bytes, sizeof(bytes),
                                        &arena, &message),
                     CAIRN_ENOMEM);
        cr_assert_leq(arena.used_bytes, (size_t)CAIRN_DECODE_BYTES_MAX);
        cairn_codec_arena_finish(&arena);
}

Test(codec, case_18_requests_of_too_many_fields_cost_nothing)
{
        // One field of OpenSpaceRequest, a message, again and again: each is merged with the last.
        // And a message whose own fields repeat; and numbers of a list that are not packed.
        static const uint8_t nested[] = {0x0a, 0xfc, 0xff, 0x1f}; // field 1, all that follows
        static uint8_t bytes[CAIRN_MESSAGE_BYTES_MAX];
        struct cairn_codec_arena arena;
        void *message;

        cairn_codec_arena_init(&arena, CAIRN_DECODE_BYTES_MAX);
        for (size_t i = 0; i + 1 < sizeof(bytes); i += 2) {
                bytes[i] = 0x0a;
                bytes[i + 1] = 0;
        }
        cr_assert_eq(cairn_codec_unpack(CAIRN_KIND_OPEN_SPACE, false, 0, bytes, sizeof(bytes),
                                        &arena, &message),
                     CAIRN_ERANGE);
        cr_assert_eq(cairn_codec_unpack(CAIRN_KIND_OPEN_SPACE, false, 0, bytes,
                                        2ul * (CAIRN_FIELDS_MAX + 1), &arena, &message),
                     CAIRN_ERANGE);
        cr_assert_eq(arena.used_bytes, 0);
        cr_assert_eq(cairn_codec_unpack(CAIRN_KIND_OPEN_SPACE, false, 0, bytes,
                                        2ul * CAIRN_FIELDS_MAX, &arena, &message),
                     CAIRN_OK);
        cairn_codec_arena_finish(&arena);

        for (size_t i = 4; i + 1 < sizeof(bytes); i += 2) {
                bytes[i] = 0x28; // layers
                bytes[i + 1] = 1;
        }
        memcpy(bytes, nested, sizeof(nested));
        cr_assert_eq(cairn_codec_unpack(CAIRN_KIND_OPEN_SPACE, false, 0, bytes, sizeof(bytes),
                                        &arena, &message),
                     CAIRN_ERANGE);
        for (size_t i = 0; i + 1 < sizeof(bytes); i += 2) {
                bytes[i] = 0x38; // Get's offsets
                bytes[i + 1] = 1;
        }
        cr_assert_eq(cairn_codec_unpack(CAIRN_KIND_GET, false, 0, bytes, sizeof(bytes), &arena,
                                        &message),
                     CAIRN_ERANGE);
        cr_assert_eq(arena.used_bytes, 0);
        cairn_codec_arena_finish(&arena);
}

Test(codec, case_18_fuzzed_bytes_never_crash)
{
        const char *text = getenv("CAIRN_TEST_SEED");
        unsigned seed = text ? (unsigned)strtoul(text, NULL, 0) : 4711u;

        cr_log_info("seed %u", seed);
        for (int round = 0; round < 20000; round++) {
                struct cairn_codec_arena arena;
                uint8_t bytes[200];
                size_t size = (size_t)rand_r(&seed) % sizeof(bytes);
                uint32_t kind = (uint32_t)rand_r(&seed) % CAIRN_KIND_COUNT;
                void *message;
                int status;

                for (size_t i = 0; i < size; i++)
                        bytes[i] =
                            (uint8_t)(rand_r(&seed) % 3 ? rand_r(&seed) % 40 : rand_r(&seed));
                cairn_codec_arena_init(&arena, 64 * 1024);
                status =
                    cairn_codec_unpack(kind, rand_r(&seed) % 2, 0, bytes, size, &arena, &message);
                cr_assert(status == CAIRN_OK || status == CAIRN_EPROTO || status == CAIRN_ENOMEM);
                cr_assert_leq(arena.used_bytes, 64u * 1024);
                cairn_codec_arena_finish(&arena);
        }
}

Test(codec, keys_of_a_wrong_size_are_refused)
{
        uint8_t bytes[64] = {0};
        ProtobufCBinaryData field = {.len = 33, .data = bytes};
        const struct cairn_key *keys;
        size_t count;

        cr_assert_eq(cairn_codec_keys(&field, &keys, &count), CAIRN_EINVAL);
        field.len = (size_t)(CAIRN_KEYS_MAX + 1) * 32;
        cr_assert_eq(cairn_codec_keys(&field, &keys, &count), CAIRN_EINVAL);
        field.len = 0;
        cr_assert_eq(cairn_codec_keys(&field, &keys, &count), CAIRN_OK);
        cr_assert_eq(count, 0);
}

Test(codec, a_message_above_the_limit_makes_no_frame)
{
        static uint8_t huge[CAIRN_MESSAGE_BYTES_MAX + 1];
        Cairn__LookupRequest request = CAIRN__LOOKUP_REQUEST__INIT;
        struct cairn_frame_header header = {.kind = CAIRN_KIND_LOOKUP};
        uint8_t *bytes;
        size_t size;

        request.keys.data = huge;
        request.keys.len = sizeof(huge);
        cr_assert_eq(cairn_codec_frame(&header, &request, 0, &bytes, &size, NULL), CAIRN_ERANGE);
}
