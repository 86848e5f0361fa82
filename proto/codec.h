// Messages: the structs that protoc-c makes of cairn.proto, packed and unpacked here and nowhere
// else. A message's memory comes from a bounded arena, so that a hostile message costs at most
// CAIRN_DECODE_BYTES_MAX. May be used by: daemon, client, tests. May use: proto, protobuf-c.
// Threads: any; an arena belongs to one.
#ifndef CAIRN_CODEC_H
#define CAIRN_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cairn.pb-c.h"
#include "proto/frame.h"
#include "proto/key.h"
#include "proto/space.h"
#include "proto/trace.h"

// Bounded memory of one decoded message: freed at once. `data` grows by chunks of malloc.
struct cairn_codec_arena {
        void *chunks;
        size_t used_bytes;
        size_t max_bytes;
};
void cairn_codec_arena_init(struct cairn_codec_arena *arena, size_t max_bytes);
void cairn_codec_arena_finish(struct cairn_codec_arena *arena);

// Decodes the request or reply message of `kind` (an error reply: pass the frame's negative status)
// into the arena. *ret_message points at the matching Cairn__XxxRequest / Cairn__XxxReply /
// Cairn__ErrorReply and lives as long as the arena. CAIRN_EPROTO: not that message; CAIRN_ENOMEM:
// it would take more than the arena may hold. CAIRN_ERANGE: a request of more than CAIRN_FIELDS_MAX
// fields, of which none was unpacked.
int cairn_codec_unpack(uint32_t kind, bool reply, int32_t status, const uint8_t *bytes, size_t size,
                       struct cairn_codec_arena *arena, void **ret_message);

// What storage remembers of a space, as unpack does it.
int cairn_codec_stored_space(const uint8_t *bytes, size_t size, struct cairn_codec_arena *arena,
                             Cairn__StoredSpace **ret_stored);

// Bytes that a message takes, and the packing into them. `message` is any Cairn__ struct that was
// initialised by its CAIRN__..__INIT.
size_t cairn_codec_size(const void *message);
void cairn_codec_pack(const void *message, uint8_t *ret_bytes);

// A whole frame in one malloc'ed buffer (header, message, room for the payload, which the caller
// fills at *ret_payload): owned by the caller. CAIRN_ENOMEM or CAIRN_ERANGE (message too large).
int cairn_codec_frame(const struct cairn_frame_header *header, const void *message,
                      size_t payload_bytes, uint8_t **ret_bytes, size_t *ret_size,
                      uint8_t **ret_payload);

// The same with a trace context behind the message; NULL: none.
int cairn_codec_frame_traced(const struct cairn_frame_header *header, const void *message,
                             const struct cairn_trace *trace, size_t payload_bytes,
                             uint8_t **ret_bytes, size_t *ret_size, uint8_t **ret_payload);
// The trace context of an unpacked request. False: it carries none, or one of another size.
bool cairn_codec_trace(const void *message, struct cairn_trace *ret_trace);

// Between the message and the plain struct. from: CAIRN_EINVAL for names too long or unknown
// numbers. to: the strings in ret_message point into `space`.
int cairn_codec_space_from(const Cairn__Space *message, struct cairn_space *ret_space);
void cairn_codec_space_to(const struct cairn_space *space, Cairn__Space *ret_message);

// n keys packed in a bytes field: CAIRN_EINVAL if the size is no multiple of 32 or above
// CAIRN_KEYS_MAX keys.
int cairn_codec_keys(const ProtobufCBinaryData *field, const struct cairn_key **ret_keys,
                     size_t *ret_count);

#endif
