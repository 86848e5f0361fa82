// Frames: header in and out, and the parser that collects bytes.
#include "proto/frame.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "proto/bytes.h"
#include "proto/status.h"

enum offset {
        AT_MAGIC = 0,
        AT_VERSION = 4,
        AT_KIND = 6,
        AT_ID = 8,
        AT_STATUS = 16,
        AT_MESSAGE = 20,
        AT_PAYLOAD = 24,
        AT_RESERVED = 28,
        FRAME_END = 32,
};
_Static_assert(FRAME_END == (int)CAIRN_FRAME_HEADER_BYTES, "the header's table ends at its size");

static const uint8_t magic[4] = {'C', 'R', 'N', '1'};

enum {
        GROW_BYTES_MIN = 4096,
        KEEP_BYTES_MAX = 256 * 1024
};

static uint32_t payload_max(bool reply)
{
        return reply ? CAIRN_REPLY_BYTES_MAX : CAIRN_PAYLOAD_BYTES_MAX;
}

void cairn_frame_header_write(const struct cairn_frame_header *header, uint8_t ret_bytes[32])
{
        assert(header->message_bytes <= CAIRN_MESSAGE_BYTES_MAX);
        assert(header->payload_bytes <= payload_max(header->reply));
        memcpy(ret_bytes + AT_MAGIC, magic, sizeof(magic));
        cairn_put_u16(ret_bytes + AT_VERSION, header->version);
        cairn_put_u16(ret_bytes + AT_KIND,
                      (uint16_t)(header->kind | (header->reply ? CAIRN_KIND_REPLY : 0)));
        cairn_put_u64(ret_bytes + AT_ID, header->id);
        cairn_put_u32(ret_bytes + AT_STATUS, (uint32_t)header->status);
        cairn_put_u32(ret_bytes + AT_MESSAGE, header->message_bytes);
        cairn_put_u32(ret_bytes + AT_PAYLOAD, header->payload_bytes);
        cairn_put_u32(ret_bytes + AT_RESERVED, 0);
}

int cairn_frame_header_read(const uint8_t bytes[32], bool expect_reply,
                            struct cairn_frame_header *ret_header)
{
        uint16_t kind = cairn_get_u16(bytes + AT_KIND);

        ret_header->version = cairn_get_u16(bytes + AT_VERSION);
        ret_header->kind = (uint16_t)(kind & ~CAIRN_KIND_REPLY);
        ret_header->reply = (kind & CAIRN_KIND_REPLY) != 0;
        ret_header->id = cairn_get_u64(bytes + AT_ID);
        ret_header->status = (int32_t)cairn_get_u32(bytes + AT_STATUS);
        ret_header->message_bytes = cairn_get_u32(bytes + AT_MESSAGE);
        ret_header->payload_bytes = cairn_get_u32(bytes + AT_PAYLOAD);

        if (memcmp(bytes + AT_MAGIC, magic, sizeof(magic)) != 0)
                return CAIRN_EPROTO;
        if (ret_header->version != CAIRN_PROTOCOL_VERSION)
                return CAIRN_EVERSION;
        if (!cairn_kind_known(ret_header->kind) || ret_header->reply != expect_reply)
                return CAIRN_EPROTO;
        if (cairn_get_u32(bytes + AT_RESERVED) != 0)
                return CAIRN_EPROTO;
        if (ret_header->message_bytes > CAIRN_MESSAGE_BYTES_MAX ||
            ret_header->payload_bytes > payload_max(expect_reply))
                return CAIRN_EPROTO;
        return CAIRN_OK;
}

void cairn_frame_parser_init(struct cairn_frame_parser *parser, bool expect_reply)
{
        *parser = (struct cairn_frame_parser){.expect_reply = expect_reply};
}

void cairn_frame_parser_finish(struct cairn_frame_parser *parser)
{
        free(parser->buffer);
        *parser = (struct cairn_frame_parser){.expect_reply = parser->expect_reply};
}

// Room for `wanted` bytes: doubled from what has arrived, never more than the frame needs.
static int reserve(struct cairn_frame_parser *parser, size_t wanted, size_t frame_bytes)
{
        size_t capacity = parser->capacity ? parser->capacity : GROW_BYTES_MIN;
        uint8_t *buffer;

        if (wanted <= parser->capacity)
                return CAIRN_OK;
        while (capacity < wanted)
                capacity *= 2;
        if (capacity > frame_bytes && frame_bytes >= wanted)
                capacity = frame_bytes;
        buffer = realloc(parser->buffer, capacity);
        if (!buffer)
                return CAIRN_ENOMEM;
        parser->buffer = buffer;
        parser->capacity = capacity;
        return CAIRN_OK;
}

// Takes up to `limit` bytes in total into the buffer; returns how many were eaten, or a negative
// status.
static int64_t collect(struct cairn_frame_parser *parser, const uint8_t *bytes, size_t size,
                       size_t limit)
{
        size_t part = limit - parser->filled;
        int status;

        if (part > size)
                part = size;
        status = reserve(parser, parser->filled + part, limit);
        if (status != CAIRN_OK)
                return status;
        if (part > 0)
                memcpy(parser->buffer + parser->filled, bytes, part);
        parser->filled += part;
        return (int64_t)part;
}

// A new frame begins: gives back the memory of a large one.
static void begin_frame(struct cairn_frame_parser *parser)
{
        parser->have_header = false;
        parser->filled = 0;
        if (parser->capacity > KEEP_BYTES_MAX) {
                free(parser->buffer);
                parser->buffer = NULL;
                parser->capacity = 0;
        }
}

static size_t frame_bytes_of(const struct cairn_frame_header *header)
{
        return (size_t)CAIRN_FRAME_HEADER_BYTES + header->message_bytes + header->payload_bytes;
}

bool cairn_frame_parser_midway(const struct cairn_frame_parser *parser)
{
        bool whole = parser->have_header && parser->filled == frame_bytes_of(&parser->header);

        return parser->filled > 0 && !whole;
}

int cairn_frame_parser_feed(struct cairn_frame_parser *parser, const uint8_t *bytes, size_t size,
                            size_t *ret_used, struct cairn_frame *ret_frame)
{
        int64_t part;
        int status;

        *ret_used = 0;
        if (parser->have_header && parser->filled == frame_bytes_of(&parser->header))
                begin_frame(parser); // the last call returned this one
        if (!parser->have_header) {
                part = collect(parser, bytes, size, CAIRN_FRAME_HEADER_BYTES);
                if (part < 0)
                        return (int)part;
                *ret_used = (size_t)part;
                if (parser->filled < CAIRN_FRAME_HEADER_BYTES)
                        return 0;
                status =
                    cairn_frame_header_read(parser->buffer, parser->expect_reply, &parser->header);
                if (status != CAIRN_OK)
                        return status;
                parser->have_header = true;
        }
        part =
            collect(parser, bytes + *ret_used, size - *ret_used, frame_bytes_of(&parser->header));
        if (part < 0)
                return (int)part;
        *ret_used += (size_t)part;
        if (parser->filled < frame_bytes_of(&parser->header))
                return 0;
        ret_frame->header = parser->header;
        ret_frame->message = parser->buffer + CAIRN_FRAME_HEADER_BYTES;
        ret_frame->payload = ret_frame->message + parser->header.message_bytes;
        return 1;
}

static const char *const kind_names[CAIRN_KIND_COUNT] = {
    [CAIRN_KIND_HELLO] = "Hello",
    [CAIRN_KIND_PING] = "Ping",
    [CAIRN_KIND_REGISTER_ARENA] = "RegisterArena",
    [CAIRN_KIND_RELEASE_ARENA] = "ReleaseArena",
    [CAIRN_KIND_OPEN_SPACE] = "OpenSpace",
    [CAIRN_KIND_LIST_SPACES] = "ListSpaces",
    [CAIRN_KIND_LOOKUP] = "Lookup",
    [CAIRN_KIND_PUT] = "Put",
    [CAIRN_KIND_GET] = "Get",
    [CAIRN_KIND_PIN] = "Pin",
    [CAIRN_KIND_UNPIN] = "Unpin",
    [CAIRN_KIND_RELEASE] = "Release",
    [CAIRN_KIND_DELETE] = "Delete",
    [CAIRN_KIND_PREFETCH] = "Prefetch",
    [CAIRN_KIND_OPEN_CONTEXT] = "OpenContext",
    [CAIRN_KIND_APPEND] = "Append",
    [CAIRN_KIND_FORK] = "Fork",
    [CAIRN_KIND_SEAL] = "Seal",
    [CAIRN_KIND_CLOSE_CONTEXT] = "CloseContext",
    [CAIRN_KIND_RETRIEVE] = "Retrieve",
    [CAIRN_KIND_FETCH_ROWS] = "FetchRows",
    [CAIRN_KIND_EXPORT_LANDMARKS] = "ExportLandmarks",
    [CAIRN_KIND_ATTEND] = "Attend",
    [CAIRN_KIND_RETAIN] = "Retain",
    [CAIRN_KIND_PLAN] = "Plan",
    [CAIRN_KIND_SET_QUOTA] = "SetQuota",
    [CAIRN_KIND_LIST_TENANTS] = "ListTenants",
    [CAIRN_KIND_SET_HOLD] = "SetHold",
    [CAIRN_KIND_LIST_HOLDS] = "ListHolds",
    [CAIRN_KIND_STATS] = "Stats",
    [CAIRN_KIND_WHY] = "Why",
    [CAIRN_KIND_AUDIT] = "Audit",
    [CAIRN_KIND_VERIFY] = "Verify",
    [CAIRN_KIND_DRAIN] = "Drain",
    [CAIRN_KIND_RELOAD] = "Reload",
    [CAIRN_KIND_LIST_BLOCKS] = "ListBlocks",
    [CAIRN_KIND_LIST_CONTEXTS] = "ListContexts",
    [CAIRN_KIND_LIST_LEASES] = "ListLeases",
    [CAIRN_KIND_SHOW_CONFIG] = "ShowConfig",
};

bool cairn_kind_known(uint32_t kind)
{
        return kind < CAIRN_KIND_COUNT && kind_names[kind] != NULL;
}

const char *cairn_kind_name(uint32_t kind)
{
        return cairn_kind_known(kind) ? kind_names[kind] : "unknown";
}
