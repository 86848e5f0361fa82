// Fuzzes what searches are asked with: messages of Retrieve, Attend, Retain, Plan, FetchRows,
// Append and ExportLandmarks, and the query payloads behind them, against an open context of a
// daemon in this process. Numbers of contexts in the message are set right, so that the rest of it
// is reached.
//
// Byte 0: which kind; bytes 1 and 2: the message's size; then the message, then the payload.
#include "proto/bytes.h"
#include "proto/codec.h"
#include "proto/status.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/live.h"

enum {
        HEAD_BYTES = 3,
        MESSAGE_MAX = 65536
};

static const uint32_t kinds[] = {CAIRN_KIND_RETRIEVE, CAIRN_KIND_ATTEND,
                                 CAIRN_KIND_RETAIN,   CAIRN_KIND_PLAN,
                                 CAIRN_KIND_APPEND,   CAIRN_KIND_FETCH_ROWS,
                                 CAIRN_KIND_FORK,     CAIRN_KIND_EXPORT_LANDMARKS};

int LLVMFuzzerInitialize(int *argc, char ***argv);

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
        (void)argc, (void)argv;
        fuzz_live_start();
        return 0;
}

static void set_context(uint32_t kind, void *message, uint64_t context)
{
        switch (kind) {
        case CAIRN_KIND_RETRIEVE:
        case CAIRN_KIND_ATTEND: {
                Cairn__RetrieveRequest *request = message;

                for (size_t i = 0; i < request->n_contexts; i++)
                        request->contexts[i] = context;
                break;
        }
        case CAIRN_KIND_RETAIN: ((Cairn__RetainRequest *)message)->context = context; break;
        case CAIRN_KIND_PLAN: ((Cairn__PlanRequest *)message)->context = context; break;
        case CAIRN_KIND_APPEND: ((Cairn__AppendRequest *)message)->context = context; break;
        case CAIRN_KIND_FETCH_ROWS: ((Cairn__FetchRowsRequest *)message)->context = context; break;
        case CAIRN_KIND_FORK: ((Cairn__ForkRequest *)message)->context = context; break;
        default: ((Cairn__ExportLandmarksRequest *)message)->context = context; break;
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
        static uint8_t packed[2 * MESSAGE_MAX];
        struct cairn_codec_arena arena;
        struct fuzz_link link;
        uint32_t kind;
        size_t message_bytes;
        void *message;

        if (size < HEAD_BYTES)
                return 0;
        kind = kinds[bytes[0] % (sizeof(kinds) / sizeof(kinds[0]))];
        message_bytes = cairn_get_u16(bytes + 1);
        bytes += HEAD_BYTES;
        size -= HEAD_BYTES;
        message_bytes = message_bytes < size ? message_bytes : size;
        cairn_codec_arena_init(&arena, CAIRN_DECODE_BYTES_MAX);
        if (cairn_codec_unpack(kind, false, 0, bytes, message_bytes, &arena, &message) ==
            CAIRN_OK) {
                fuzz_link_open(&link, true);
                set_context(kind, message, link.context);
                if (cairn_codec_size(message) <= sizeof(packed)) {
                        cairn_codec_pack(message, packed);
                        fuzz_link_send(&link, kind, packed, cairn_codec_size(message),
                                       bytes + message_bytes, size - message_bytes);
                        // Once more: the second finds what the first left.
                        fuzz_link_send(&link, kind, packed, cairn_codec_size(message),
                                       bytes + message_bytes, size - message_bytes);
                }
                fuzz_link_end(&link);
        }
        cairn_codec_arena_finish(&arena);
        return 0;
}
