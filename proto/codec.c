// Packing and unpacking of messages: the only caller of protobuf-c.
#include "proto/codec.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "proto/status.h"

enum {
        NESTING_MAX = 8 // messages in messages; the schema has fewer
};

// ---- bounded memory ----

struct chunk {
        struct chunk *next;
        _Alignas(16) uint8_t bytes[];
};

void cairn_codec_arena_init(struct cairn_codec_arena *arena, size_t max_bytes)
{
        *arena = (struct cairn_codec_arena){.max_bytes = max_bytes};
}

void cairn_codec_arena_finish(struct cairn_codec_arena *arena)
{
        struct chunk *chunk = arena->chunks;

        while (chunk) {
                struct chunk *next = chunk->next;

                free(chunk);
                chunk = next;
        }
        cairn_codec_arena_init(arena, arena->max_bytes);
}

static void *arena_alloc(void *arg, size_t size)
{
        struct cairn_codec_arena *arena = arg;
        size_t total = sizeof(struct chunk) + size;
        struct chunk *chunk;

        if (size > arena->max_bytes || arena->used_bytes > arena->max_bytes - size ||
            total > arena->max_bytes - arena->used_bytes)
                return NULL;
        chunk = malloc(total);
        if (!chunk)
                return NULL;
        chunk->next = arena->chunks;
        arena->chunks = chunk;
        arena->used_bytes += total;
        return chunk->bytes;
}

// protobuf-c frees what it replaces while it unpacks; all of it goes with the arena.
static void arena_free(void *arg, void *pointer)
{
        (void)arg;
        (void)pointer;
}

// ---- which message a kind has ----

struct pair {
        const ProtobufCMessageDescriptor *request;
        const ProtobufCMessageDescriptor *reply;
};

#define PAIR(name)                                                                       \
        {                                                                                \
                &cairn__##name##_request__descriptor, &cairn__##name##_reply__descriptor \
        }
static const struct pair pairs[CAIRN_KIND_COUNT] = {
    [CAIRN_KIND_HELLO] = PAIR(hello),
    [CAIRN_KIND_PING] = PAIR(ping),
    [CAIRN_KIND_REGISTER_ARENA] = PAIR(register_arena),
    [CAIRN_KIND_RELEASE_ARENA] = PAIR(release_arena),
    [CAIRN_KIND_OPEN_SPACE] = PAIR(open_space),
    [CAIRN_KIND_LIST_SPACES] = PAIR(list_spaces),
    [CAIRN_KIND_LOOKUP] = PAIR(lookup),
    [CAIRN_KIND_PUT] = PAIR(put),
    [CAIRN_KIND_GET] = PAIR(get),
    [CAIRN_KIND_PIN] = PAIR(pin),
    [CAIRN_KIND_UNPIN] = PAIR(unpin),
    [CAIRN_KIND_RELEASE] = PAIR(release),
    [CAIRN_KIND_DELETE] = PAIR(delete),
    [CAIRN_KIND_PREFETCH] = PAIR(prefetch),
    [CAIRN_KIND_OPEN_CONTEXT] = PAIR(open_context),
    [CAIRN_KIND_APPEND] = PAIR(append),
    [CAIRN_KIND_FORK] = PAIR(fork),
    [CAIRN_KIND_SEAL] = PAIR(seal),
    [CAIRN_KIND_CLOSE_CONTEXT] = PAIR(close_context),
    [CAIRN_KIND_RETRIEVE] = PAIR(retrieve),
    [CAIRN_KIND_FETCH_ROWS] = PAIR(fetch_rows),
    [CAIRN_KIND_EXPORT_LANDMARKS] = PAIR(export_landmarks),
    [CAIRN_KIND_ATTEND] = {&cairn__retrieve_request__descriptor,
                           &cairn__retrieve_reply__descriptor},
    [CAIRN_KIND_RETAIN] = PAIR(retain),
    [CAIRN_KIND_PLAN] = PAIR(plan),
    [CAIRN_KIND_SET_QUOTA] = PAIR(set_quota),
    [CAIRN_KIND_LIST_TENANTS] = PAIR(list_tenants),
    [CAIRN_KIND_SET_HOLD] = PAIR(set_hold),
    [CAIRN_KIND_LIST_HOLDS] = PAIR(list_holds),
    [CAIRN_KIND_STATS] = PAIR(stats),
    [CAIRN_KIND_WHY] = PAIR(why),
    [CAIRN_KIND_AUDIT] = PAIR(audit),
    [CAIRN_KIND_VERIFY] = PAIR(verify),
    [CAIRN_KIND_DRAIN] = PAIR(drain),
    [CAIRN_KIND_RELOAD] = PAIR(reload),
    [CAIRN_KIND_LIST_BLOCKS] = PAIR(list_blocks),
    [CAIRN_KIND_LIST_CONTEXTS] = PAIR(list_contexts),
    [CAIRN_KIND_LIST_LEASES] = PAIR(list_leases),
    [CAIRN_KIND_SHOW_CONFIG] = PAIR(show_config),
};

static const ProtobufCMessageDescriptor *descriptor_of(uint32_t kind, bool reply, int32_t status)
{
        if (!cairn_kind_known(kind))
                return NULL;
        if (reply && status < 0)
                return &cairn__error_reply__descriptor;
        return reply ? pairs[kind].reply : pairs[kind].request;
}

static int unpack(const ProtobufCMessageDescriptor *descriptor, const uint8_t *bytes, size_t size,
                  struct cairn_codec_arena *arena, void **ret_message)
{
        ProtobufCAllocator allocator = {arena_alloc, arena_free, arena};
        ProtobufCMessage *message;

        if (!descriptor || size > CAIRN_MESSAGE_BYTES_MAX)
                return CAIRN_EPROTO;
        message = protobuf_c_message_unpack(descriptor, &allocator, size, bytes);
        if (!message) {
                // The library tells no reason: when the arena is nearly full, that was it.
                bool full = arena->used_bytes + size / 2 >= arena->max_bytes / 2;

                return full ? CAIRN_ENOMEM : CAIRN_EPROTO;
        }
        *ret_message = message;
        return CAIRN_OK;
}

// Takes a varint from bytes[*used..size]. False: it does not end there, or is above 64 bits.
static bool take_varint(const uint8_t *bytes, size_t size, size_t *used, uint64_t *ret_value)
{
        uint64_t value = 0;

        for (unsigned shift = 0; shift < 64 && *used < size; shift += 7) {
                uint8_t byte = bytes[(*used)++];

                value |= (uint64_t)(byte & 0x7f) << shift;
                if (!(byte & 0x80)) {
                        *ret_value = value;
                        return true;
                }
        }
        return false;
}

// Whether bytes[size] hold at most *left fields, those of known messages inside included; counts
// *left down. Says yes of what is no message: unpacking stops there as well.
static bool fields_fit(const ProtobufCMessageDescriptor *descriptor, const uint8_t *bytes,
                       size_t size, unsigned depth, uint32_t *left)
{
        size_t used = 0;

        while (used < size) {
                const ProtobufCFieldDescriptor *field;
                uint64_t tag;
                uint64_t length;

                if ((*left)-- == 0)
                        return false;
                if (!take_varint(bytes, size, &used, &tag) || tag >> 3 > UINT32_MAX)
                        return true;
                switch (tag & 7) {
                case PROTOBUF_C_WIRE_TYPE_VARINT:
                        if (!take_varint(bytes, size, &used, &length))
                                return true;
                        continue;
                case PROTOBUF_C_WIRE_TYPE_64BIT: length = 8; break;
                case PROTOBUF_C_WIRE_TYPE_32BIT: length = 4; break;
                case PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED:
                        if (!take_varint(bytes, size, &used, &length))
                                return true;
                        break;
                default: return true;
                }
                if (length > size - used)
                        return true;
                field = protobuf_c_message_descriptor_get_field(descriptor, (unsigned)(tag >> 3));
                if (field && field->type == PROTOBUF_C_TYPE_MESSAGE && depth > 0 &&
                    !fields_fit(field->descriptor, bytes + used, (size_t)length, depth - 1, left))
                        return false;
                used += (size_t)length;
        }
        return true;
}

int cairn_codec_unpack(uint32_t kind, bool reply, int32_t status, const uint8_t *bytes, size_t size,
                       struct cairn_codec_arena *arena, void **ret_message)
{
        const ProtobufCMessageDescriptor *descriptor = descriptor_of(kind, reply, status);
        uint32_t left = CAIRN_FIELDS_MAX;

        // Before any is unpacked: half a million empty fields would keep the caller for
        // milliseconds.
        if (descriptor && !reply && size > CAIRN_FIELDS_MAX &&
            !fields_fit(descriptor, bytes, size, NESTING_MAX, &left))
                return CAIRN_ERANGE;
        return unpack(descriptor, bytes, size, arena, ret_message);
}

int cairn_codec_stored_space(const uint8_t *bytes, size_t size, struct cairn_codec_arena *arena,
                             Cairn__StoredSpace **ret_stored)
{
        void *message;
        int status = unpack(&cairn__stored_space__descriptor, bytes, size, arena, &message);

        if (status == CAIRN_OK)
                *ret_stored = message;
        return status;
}

size_t cairn_codec_size(const void *message)
{
        return protobuf_c_message_get_packed_size(message);
}

void cairn_codec_pack(const void *message, uint8_t *ret_bytes)
{
        size_t size = protobuf_c_message_pack(message, ret_bytes);

        assert(size <= CAIRN_MESSAGE_BYTES_MAX);
        (void)size; // asserted
}

int cairn_codec_frame(const struct cairn_frame_header *header, const void *message,
                      size_t payload_bytes, uint8_t **ret_bytes, size_t *ret_size,
                      uint8_t **ret_payload)
{
        return cairn_codec_frame_traced(header, message, NULL, payload_bytes, ret_bytes, ret_size,
                                        ret_payload);
}

int cairn_codec_frame_traced(const struct cairn_frame_header *header, const void *message,
                             const struct cairn_trace *trace, size_t payload_bytes,
                             uint8_t **ret_bytes, size_t *ret_size, uint8_t **ret_payload)
{
        struct cairn_frame_header full = *header;
        size_t own_bytes = message ? cairn_codec_size(message) : 0;
        size_t message_bytes = own_bytes + (trace ? CAIRN_TRACE_FIELD_BYTES : 0);
        size_t payload_max = header->reply ? CAIRN_REPLY_BYTES_MAX : CAIRN_PAYLOAD_BYTES_MAX;
        size_t size = CAIRN_FRAME_HEADER_BYTES + message_bytes + payload_bytes;
        uint8_t *bytes;

        if (message_bytes > CAIRN_MESSAGE_BYTES_MAX || payload_bytes > payload_max)
                return CAIRN_ERANGE;
        bytes = malloc(size);
        if (!bytes)
                return CAIRN_ENOMEM;
        full.version = CAIRN_PROTOCOL_VERSION;
        full.message_bytes = (uint32_t)message_bytes;
        full.payload_bytes = (uint32_t)payload_bytes;
        cairn_frame_header_write(&full, bytes);
        if (message)
                cairn_codec_pack(message, bytes + CAIRN_FRAME_HEADER_BYTES);
        if (trace)
                cairn_trace_write(trace, bytes + CAIRN_FRAME_HEADER_BYTES + own_bytes);
        *ret_bytes = bytes;
        *ret_size = size;
        if (ret_payload)
                *ret_payload = bytes + CAIRN_FRAME_HEADER_BYTES + message_bytes;
        return CAIRN_OK;
}

bool cairn_codec_trace(const void *message, struct cairn_trace *ret_trace)
{
        const ProtobufCMessage *base = message;

        for (unsigned i = 0; i < base->n_unknown_fields; i++) {
                const ProtobufCMessageUnknownField *field = &base->unknown_fields[i];

                // The bytes of such a field begin with their length.
                if (field->tag != CAIRN_TRACE_FIELD ||
                    field->wire_type != PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED ||
                    field->len != CAIRN_TRACE_BYTES + 1)
                        continue;
                memcpy(ret_trace->id, field->data + 1, sizeof(ret_trace->id));
                memcpy(ret_trace->span, field->data + 1 + sizeof(ret_trace->id),
                       sizeof(ret_trace->span));
                return cairn_trace_is_set(ret_trace);
        }
        return false;
}

// ---- spaces and keys ----

// A string field: protobuf-c gives "" for an absent one and zero-terminates; embedded zeros were
// cut by it.
static int take_name(const char *from, char *to)
{
        size_t size = strlen(from);

        if (size > CAIRN_NAME_BYTES_MAX)
                return CAIRN_EINVAL;
        memcpy(to, from, size + 1);
        return CAIRN_OK;
}

int cairn_codec_space_from(const Cairn__Space *message, struct cairn_space *ret_space)
{
        struct cairn_space space = {
            .kind = (uint32_t)message->kind,
            .layers = message->layers,
            .kv_heads = message->kv_heads,
            .k_dim = message->k_dim,
            .v_dim = message->v_dim,
            .dtype = (uint32_t)message->dtype,
            .block_tokens = message->block_tokens,
            .cache_group = message->cache_group,
            .tp_rank = message->tp_rank,
            .tp_size = message->tp_size,
            .rope = (uint32_t)message->rope,
            .landmark_bits = message->landmark_bits,
            .outliers = message->outliers,
            .run_tokens = message->run_tokens,
            .value_bits = message->value_bits,
            .k_codec = (uint32_t)message->k_codec,
            .v_codec = (uint32_t)message->v_codec,
            .block_bytes = message->block_bytes,
            .shared = message->shared ? 1 : 0,
            .v_prefix = message->v_prefix,
        };

        if (take_name(message->model, space.model) != CAIRN_OK ||
            take_name(message->revision, space.revision) != CAIRN_OK ||
            take_name(message->layout, space.layout) != CAIRN_OK)
                return CAIRN_EINVAL;
        *ret_space = space;
        return CAIRN_OK;
}

void cairn_codec_space_to(const struct cairn_space *space, Cairn__Space *ret_message)
{
        Cairn__Space message = CAIRN__SPACE__INIT;

        message.kind = (Cairn__SpaceKind)space->kind;
        message.model = (char *)space->model;
        message.revision = (char *)space->revision;
        message.layout = (char *)space->layout;
        message.layers = space->layers;
        message.kv_heads = space->kv_heads;
        message.k_dim = space->k_dim;
        message.v_dim = space->v_dim;
        message.dtype = (Cairn__Dtype)space->dtype;
        message.block_tokens = space->block_tokens;
        message.cache_group = space->cache_group;
        message.tp_rank = space->tp_rank;
        message.tp_size = space->tp_size;
        message.rope = (Cairn__Rope)space->rope;
        message.landmark_bits = space->landmark_bits;
        message.outliers = space->outliers;
        message.run_tokens = space->run_tokens;
        message.value_bits = space->value_bits;
        message.k_codec = (Cairn__RowCodec)space->k_codec;
        message.v_codec = (Cairn__RowCodec)space->v_codec;
        message.block_bytes = space->block_bytes;
        message.shared = space->shared != 0;
        message.v_prefix = space->v_prefix;
        *ret_message = message;
}

int cairn_codec_keys(const ProtobufCBinaryData *field, const struct cairn_key **ret_keys,
                     size_t *ret_count)
{
        _Static_assert(sizeof(struct cairn_key) == CAIRN_KEY_BYTES &&
                           _Alignof(struct cairn_key) == 1,
                       "keys can be read in place");

        if (field->len % CAIRN_KEY_BYTES != 0 || field->len / CAIRN_KEY_BYTES > CAIRN_KEYS_MAX)
                return CAIRN_EINVAL;
        *ret_keys = (const struct cairn_key *)field->data;
        *ret_count = field->len / CAIRN_KEY_BYTES;
        return CAIRN_OK;
}
