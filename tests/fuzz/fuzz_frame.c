// Fuzzes the parser of frames: any bytes, in any cuts, give the same frames and the same end.
#include <stdlib.h>
#include <string.h>

#include "proto/frame.h"
#include "proto/status.h"
#include "tests/fuzz/fuzz.h"

struct outcome {
        int status; // of the last feed: 0 or negative
        size_t frames;
        uint64_t digest; // over all frames
        bool midway;
};

static uint64_t mix(uint64_t digest, const void *bytes, size_t size)
{
        const uint8_t *b = bytes;

        for (size_t i = 0; i < size; i++)
                digest = (digest ^ b[i]) * 0x100000001b3u;
        return digest;
}

// Feeds all bytes, at most `step` at once.
static struct outcome parse(const uint8_t *bytes, size_t size, size_t step, bool replies)
{
        struct outcome outcome = {.digest = 14695981039346656037u};
        struct cairn_frame_parser parser;
        size_t at = 0;

        cairn_frame_parser_init(&parser, replies);
        while (at < size) {
                size_t piece = size - at < step ? size - at : step;
                struct cairn_frame frame;
                size_t used;

                outcome.status = cairn_frame_parser_feed(&parser, bytes + at, piece, &used, &frame);
                FUZZ_CHECK(used <= piece);
                at += used;
                if (outcome.status < 0)
                        break;
                if (outcome.status == 0) {
                        FUZZ_CHECK(used == piece);
                        continue;
                }
                FUZZ_CHECK(frame.header.message_bytes <= CAIRN_MESSAGE_BYTES_MAX);
                FUZZ_CHECK(frame.header.payload_bytes <= CAIRN_REPLY_BYTES_MAX);
                FUZZ_CHECK(parser.capacity <= size + 64 * 1024); // grows with what came
                outcome.frames++;
                outcome.digest = mix(outcome.digest, &frame.header.id, sizeof(frame.header.id));
                if (frame.header.message_bytes > 0)
                        outcome.digest =
                            mix(outcome.digest, frame.message, frame.header.message_bytes);
                if (frame.header.payload_bytes > 0)
                        outcome.digest =
                            mix(outcome.digest, frame.payload, frame.header.payload_bytes);
                outcome.status = 0;
        }
        outcome.midway = outcome.status == 0 && cairn_frame_parser_midway(&parser);
        cairn_frame_parser_finish(&parser);
        return outcome;
}

// The first byte says how to cut and which side reads.
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
        struct outcome whole;
        struct outcome cut;
        bool replies;
        size_t step;

        if (size < 1)
                return 0;
        replies = bytes[0] & 1;
        step = 1 + (bytes[0] >> 1);
        whole = parse(bytes + 1, size - 1, size, replies);
        cut = parse(bytes + 1, size - 1, step, replies);
        FUZZ_CHECK(whole.status == cut.status);
        FUZZ_CHECK(whole.frames == cut.frames && whole.digest == cut.digest);
        FUZZ_CHECK(whole.midway == cut.midway);
        return 0;
}
