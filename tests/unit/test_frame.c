// Frames: header round trip, refusals, and the parser at every cut.
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "proto/bytes.h"
#include "proto/frame.h"
#include "proto/status.h"

static size_t make_frame(uint8_t *bytes, uint16_t kind, uint64_t id, uint32_t message,
                         uint32_t payload)
{
        struct cairn_frame_header header = {.version = CAIRN_PROTOCOL_VERSION,
                                            .kind = kind,
                                            .id = id,
                                            .message_bytes = message,
                                            .payload_bytes = payload};

        cairn_frame_header_write(&header, bytes);
        for (uint32_t i = 0; i < message + payload; i++)
                bytes[CAIRN_FRAME_HEADER_BYTES + i] = (uint8_t)(id * 31 + i);
        return CAIRN_FRAME_HEADER_BYTES + message + payload;
}

Test(frame, header_round_trip)
{
        struct cairn_frame_header in = {.version = CAIRN_PROTOCOL_VERSION,
                                        .kind = CAIRN_KIND_RETRIEVE,
                                        .reply = true,
                                        .id = 0x1122334455667788ull,
                                        .status = CAIRN_ENOENT,
                                        .message_bytes = CAIRN_MESSAGE_BYTES_MAX,
                                        .payload_bytes = CAIRN_REPLY_BYTES_MAX};
        struct cairn_frame_header out;
        uint8_t bytes[32];

        cairn_frame_header_write(&in, bytes);
        cr_assert_eq(cairn_frame_header_read(bytes, true, &out), CAIRN_OK);
        cr_assert_eq(out.kind, in.kind);
        cr_assert_eq(out.reply, true);
        cr_assert_eq(out.id, in.id);
        cr_assert_eq(out.status, in.status);
        cr_assert_eq(out.message_bytes, in.message_bytes);
        cr_assert_eq(out.payload_bytes, in.payload_bytes);
        cr_assert_eq(cairn_frame_header_read(bytes, false, &out), CAIRN_EPROTO,
                     "a reply where a request is due");
}

Test(frame, refuses_magic_version_kind_reserved_and_sizes)
{
        static const struct {
                size_t offset;
                uint32_t value;
                size_t width;
                int expected;
        } changes[] = {
            {0, 0x31524e44, 4, CAIRN_EPROTO},
            {4, 2, 2, CAIRN_EVERSION},
            {6, 0, 2, CAIRN_EPROTO},
            {6, 7, 2, CAIRN_EPROTO},
            {6, 0x7fff, 2, CAIRN_EPROTO},
            {20, CAIRN_MESSAGE_BYTES_MAX + 1, 4, CAIRN_EPROTO},
            {20, 0xffffffffu, 4, CAIRN_EPROTO},
            {24, CAIRN_PAYLOAD_BYTES_MAX + 1, 4, CAIRN_EPROTO},
            {24, 0xffffffffu, 4, CAIRN_EPROTO},
            {28, 1, 4, CAIRN_EPROTO},
        };

        for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
                struct cairn_frame_header header;
                uint8_t bytes[64];

                make_frame(bytes, CAIRN_KIND_PING, 5, 0, 0);
                if (changes[i].width == 2)
                        cairn_put_u16(bytes + changes[i].offset, (uint16_t)changes[i].value);
                else
                        cairn_put_u32(bytes + changes[i].offset, changes[i].value);
                cr_assert_eq(cairn_frame_header_read(bytes, false, &header), changes[i].expected,
                             "change %zu", i);
        }
}

// Feeds `size` bytes in pieces cut at `cut`, and expects the three frames in order.
static void expect_three(const uint8_t *bytes, size_t size, size_t cut)
{
        struct cairn_frame_parser parser;
        size_t at = 0;
        uint64_t frames = 0;

        cairn_frame_parser_init(&parser, false);
        while (at < size) {
                size_t end = at < cut ? cut : size;
                size_t used;
                struct cairn_frame frame;
                int status = cairn_frame_parser_feed(&parser, bytes + at, end - at, &used, &frame);

                cr_assert_geq(status, 0);
                at += used;
                if (status == 1) {
                        frames++;
                        cr_assert_eq(frame.header.id, frames);
                        for (uint32_t i = 0; i < frame.header.message_bytes; i++)
                                cr_assert_eq(frame.message[i], (uint8_t)(frames * 31 + i));
                } else {
                        cr_assert_eq(at, end, "without a frame all bytes are used");
                }
        }
        cr_assert_eq(frames, 3);
        cairn_frame_parser_finish(&parser);
}

Test(frame, case_13_cut_at_every_offset)
{
        uint8_t bytes[1024];
        size_t size = 0;

        size += make_frame(bytes + size, CAIRN_KIND_PING, 1, 0, 0);
        size += make_frame(bytes + size, CAIRN_KIND_PUT, 2, 100, 57);
        size += make_frame(bytes + size, CAIRN_KIND_GET, 3, 33, 0);
        for (size_t cut = 0; cut <= size; cut++)
                expect_three(bytes, size, cut);
}

Test(frame, case_13_a_byte_a_time)
{
        struct cairn_frame_parser parser;
        uint8_t bytes[512];
        size_t size = make_frame(bytes, CAIRN_KIND_PUT, 9, 200, 100);
        struct cairn_frame frame;
        size_t used;

        cairn_frame_parser_init(&parser, false);
        for (size_t i = 0; i + 1 < size; i++) {
                cr_assert_eq(cairn_frame_parser_feed(&parser, bytes + i, 1, &used, &frame), 0);
                cr_assert(cairn_frame_parser_midway(&parser));
        }
        cr_assert_eq(cairn_frame_parser_feed(&parser, bytes + size - 1, 1, &used, &frame), 1);
        cr_assert_eq(frame.header.payload_bytes, 100);
        cr_assert_arr_eq(frame.payload, bytes + 232, 100);
        cairn_frame_parser_finish(&parser);
}

Test(frame, case_12_claimed_size_costs_no_memory)
{
        struct cairn_frame_parser parser;
        struct cairn_frame frame;
        uint8_t bytes[64];
        size_t used;

        cairn_frame_parser_init(&parser, false);
        make_frame(bytes, CAIRN_KIND_PUT, 1, 0, 0);
        cairn_put_u32(bytes + 20, CAIRN_MESSAGE_BYTES_MAX);
        cairn_put_u32(bytes + 24, CAIRN_PAYLOAD_BYTES_MAX);
        cr_assert_eq(cairn_frame_parser_feed(&parser, bytes, 40, &used, &frame), 0);
        cr_assert_leq(parser.capacity, 8192, "memory follows what has arrived");
        cairn_frame_parser_finish(&parser);
}

Test(frame, random_bytes_never_break_the_parser)
{
        const char *text = getenv("CAIRN_TEST_SEED");
        unsigned seed = text ? (unsigned)strtoul(text, NULL, 0) : 20260u;

        cr_log_info("seed %u", seed);
        for (int round = 0; round < 2000; round++) {
                struct cairn_frame_parser parser;
                uint8_t bytes[256];
                size_t size = make_frame(bytes, CAIRN_KIND_GET, 1, 60, 20);
                size_t at = 0;

                for (int flips = rand_r(&seed) % 4; flips >= 0; flips--)
                        bytes[(size_t)rand_r(&seed) % size] ^= (uint8_t)(1u << (rand_r(&seed) % 8));
                cairn_frame_parser_init(&parser, false);
                while (at < size) {
                        struct cairn_frame frame;
                        size_t used;
                        int status =
                            cairn_frame_parser_feed(&parser, bytes + at, size - at, &used, &frame);

                        cr_assert(used <= size - at);
                        at += used;
                        if (status < 0)
                                break;
                        cr_assert(status == 1 || at == size);
                }
                cairn_frame_parser_finish(&parser);
        }
}
