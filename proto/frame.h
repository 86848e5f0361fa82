// Frames: a fixed header, a protobuf message, an optional raw payload. Sans-I/O: bytes in, frames
// out. This is the only parser of the wire; daemon and client both use it. May be used by: daemon,
// client, tests. May use: proto. Threads: a parser belongs to one thread.
//
//   offset  size  field            (little endian)
//        0     4  magic            "CRN1"
//        4     2  version          CAIRN_PROTOCOL_VERSION
//        6     2  kind             enum cairn_kind; bit 15 is set in replies
//        8     8  request id       chosen by the client, echoed
//       16     4  status           replies: enum cairn_status; requests: deadline in ms from
//       receipt, 0 for none 20     4  message bytes    <= CAIRN_MESSAGE_BYTES_MAX 24     4  payload
//       bytes    <= CAIRN_PAYLOAD_BYTES_MAX (replies: <= CAIRN_REPLY_BYTES_MAX) 28     4  reserved
//       0
#ifndef CAIRN_FRAME_H
#define CAIRN_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/limits.h"

enum cairn_kind {
        CAIRN_KIND_HELLO = 1,
        CAIRN_KIND_PING = 2,
        CAIRN_KIND_REGISTER_ARENA = 3,
        CAIRN_KIND_RELEASE_ARENA = 4,
        CAIRN_KIND_OPEN_SPACE = 5,
        CAIRN_KIND_LIST_SPACES = 6,
        CAIRN_KIND_LOOKUP = 16,
        CAIRN_KIND_PUT = 17,
        CAIRN_KIND_GET = 18,
        CAIRN_KIND_PIN = 19,
        CAIRN_KIND_UNPIN = 20,
        CAIRN_KIND_RELEASE = 21,
        CAIRN_KIND_DELETE = 22,
        CAIRN_KIND_PREFETCH = 23,
        CAIRN_KIND_OPEN_CONTEXT = 32,
        CAIRN_KIND_APPEND = 33,
        CAIRN_KIND_FORK = 34,
        CAIRN_KIND_SEAL = 35,
        CAIRN_KIND_CLOSE_CONTEXT = 36,
        CAIRN_KIND_RETRIEVE = 37,
        CAIRN_KIND_FETCH_ROWS = 38,
        CAIRN_KIND_EXPORT_LANDMARKS = 39,
        CAIRN_KIND_ATTEND = 40,
        CAIRN_KIND_RETAIN = 48,
        CAIRN_KIND_PLAN = 49,
        CAIRN_KIND_SET_QUOTA = 50,
        CAIRN_KIND_LIST_TENANTS = 51,
        CAIRN_KIND_SET_HOLD = 52,
        CAIRN_KIND_LIST_HOLDS = 53,
        CAIRN_KIND_STATS = 64,
        CAIRN_KIND_WHY = 65,
        CAIRN_KIND_AUDIT = 66,
        CAIRN_KIND_VERIFY = 67,
        CAIRN_KIND_DRAIN = 68,
        CAIRN_KIND_RELOAD = 69,
        CAIRN_KIND_LIST_BLOCKS = 80,
        CAIRN_KIND_LIST_CONTEXTS = 81,
        CAIRN_KIND_LIST_LEASES = 82,
        CAIRN_KIND_SHOW_CONFIG = 83,
        CAIRN_KIND_COUNT = 84, // one above the largest
};
#define CAIRN_KIND_REPLY 0x8000u

struct cairn_frame_header {
        uint16_t version;
        uint16_t kind; // without the reply bit
        bool reply;
        uint64_t id;
        int32_t status; // requests: the deadline in ms
        uint32_t message_bytes;
        uint32_t payload_bytes;
};

// A whole frame. The bytes belong to the parser and stay until its next feed or finish.
struct cairn_frame {
        struct cairn_frame_header header;
        const uint8_t *message;
        const uint8_t *payload;
};

// Writes the 32 bytes. Asserts that sizes are within the limits.
void cairn_frame_header_write(const struct cairn_frame_header *header, uint8_t ret_bytes[32]);
// CAIRN_EPROTO (magic, kind, reserved, size above its limit) or CAIRN_EVERSION; ret_header is
// filled as far as read, so that a refusal can echo the id.
int cairn_frame_header_read(const uint8_t bytes[32], bool expect_reply,
                            struct cairn_frame_header *ret_header);

// Collects bytes. Memory grows with what has arrived, never with what a header claims.
struct cairn_frame_parser {
        uint8_t *buffer; // owned
        size_t capacity;
        size_t filled;
        bool expect_reply;
        bool have_header;
        struct cairn_frame_header header;
};

void cairn_frame_parser_init(struct cairn_frame_parser *parser, bool expect_reply);
void cairn_frame_parser_finish(struct cairn_frame_parser *parser);

// Eats some of bytes[size] and says how many in *ret_used. Returns 1 and a frame when one is whole,
// 0 when more bytes are needed (all were used), or a negative status: the stream cannot be followed
// any more (the header, as far as it was read, is in parser->header). Call again with what was not
// used. ret_frame is valid until the next call.
int cairn_frame_parser_feed(struct cairn_frame_parser *parser, const uint8_t *bytes, size_t size,
                            size_t *ret_used, struct cairn_frame *ret_frame);

// True while a frame is begun and not whole.
bool cairn_frame_parser_midway(const struct cairn_frame_parser *parser);

// "Retrieve" for CAIRN_KIND_RETRIEVE; "unknown" else. False for a number that is no kind.
const char *cairn_kind_name(uint32_t kind);
bool cairn_kind_known(uint32_t kind);

#endif
