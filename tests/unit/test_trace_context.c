// Trace contexts: the text of the W3C, and their way through a frame.
#include <criterion/criterion.h>
#include <string.h>

#include "proto/codec.h"
#include "proto/status.h"

static const char good[] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

Test(trace, texts)
{
        struct cairn_trace trace = {.id = {0}};
        char id[CAIRN_TRACE_ID_TEXT];
        char span[CAIRN_TRACE_SPAN_TEXT];

        cr_assert_not(cairn_trace_is_set(&trace));
        cr_assert_eq(cairn_trace_parse(good, &trace), CAIRN_OK);
        cr_assert(cairn_trace_is_set(&trace));
        cairn_trace_text(&trace, id, span);
        cr_assert_str_eq(id, "0af7651916cd43dd8448eb211c80319c");
        cr_assert_str_eq(span, "b7ad6b7169203331");
        // A later version may say more.
        cr_assert_eq(cairn_trace_parse(
                         "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more", &trace),
                     CAIRN_OK);
}

Test(trace, what_is_none_changes_nothing)
{
        static const char *const bad[] = {
            "",
            "00",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00 0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319g-b7ad6b7169203331-01",
        };
        struct cairn_trace trace = {.id = {7}};

        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
                cr_assert_eq(cairn_trace_parse(bad[i], &trace), CAIRN_EINVAL, "%s", bad[i]);
        cr_assert_eq(trace.id[0], 7);
}

Test(trace, rides_behind_any_message)
{
        Cairn__LookupRequest request = CAIRN__LOOKUP_REQUEST__INIT;
        struct cairn_frame_header header = {.kind = CAIRN_KIND_LOOKUP, .id = 9};
        struct cairn_frame_header read;
        struct cairn_codec_arena arena;
        struct cairn_trace sent;
        struct cairn_trace got;
        uint8_t *bytes;
        size_t size;
        void *message;

        request.space = 5;
        cr_assert_eq(cairn_trace_parse(good, &sent), CAIRN_OK);
        cr_assert_eq(cairn_codec_frame_traced(&header, &request, &sent, 0, &bytes, &size, NULL),
                     CAIRN_OK);
        cr_assert_eq(cairn_frame_header_read(bytes, false, &read), CAIRN_OK);
        cairn_codec_arena_init(&arena, CAIRN_DECODE_BYTES_MAX);
        cr_assert_eq(cairn_codec_unpack(CAIRN_KIND_LOOKUP, false, 0,
                                        bytes + CAIRN_FRAME_HEADER_BYTES, read.message_bytes,
                                        &arena, &message),
                     CAIRN_OK);
        cr_assert_eq(((const Cairn__LookupRequest *)message)->space, 5);
        cr_assert(cairn_codec_trace(message, &got));
        cr_assert_arr_eq(&got, &sent, sizeof(got));
        // One of another size is skipped, like any field that nobody knows.
        bytes[CAIRN_FRAME_HEADER_BYTES + read.message_bytes - CAIRN_TRACE_BYTES - 1]--;
        cr_assert_eq(cairn_codec_unpack(CAIRN_KIND_LOOKUP, false, 0,
                                        bytes + CAIRN_FRAME_HEADER_BYTES, read.message_bytes - 1,
                                        &arena, &message),
                     CAIRN_OK);
        cr_assert_not(cairn_codec_trace(message, &got));
        cairn_codec_arena_finish(&arena);
        free(bytes);
}
