// Every bound of the wire and of a single request. Bounds that an operator may set live in the
// configuration. May be used by: all folders. May use: nothing.
#ifndef CAIRN_LIMITS_H
#define CAIRN_LIMITS_H

enum {
        CAIRN_PROTOCOL_VERSION = 1,
        CAIRN_FRAME_HEADER_BYTES = 32,
        CAIRN_MESSAGE_BYTES_MAX = 512 * 1024,
        CAIRN_PAYLOAD_BYTES_MAX = 4 * 1024 * 1024,
        CAIRN_DECODE_BYTES_MAX = 4 * 1024 * 1024, // memory that one decoded message may take
        CAIRN_FIELDS_MAX = 4096, // of a request, those of messages inside it too; packed: one
        CAIRN_KEY_BYTES = 32,
        CAIRN_KEYS_MAX = 4096,             // keys a request
        CAIRN_SOCKET_PATH_BYTES_MAX = 107, // sun_path less its final zero
        CAIRN_CONNECTIONS_MAX = 1024,
        CAIRN_INFLIGHT_MAX = 256,                 // requests of one connection under way
        CAIRN_REPLY_BYTES_MAX = 32 * 1024 * 1024, // unsent replies of one connection
        CAIRN_UNSENT_BYTES = 512 * 1024,   // of replies: requests are begun one by one, with pauses
        CAIRN_DESCRIPTORS_PENDING_MAX = 4, // received, not yet claimed by a RegisterArena
        CAIRN_ARENAS_MAX = 16,             // a connection
        CAIRN_LEASES_MAX = 1024,           // a connection
        CAIRN_VIEW_DESCRIPTORS_MAX = 64,   // segments that one reply may bring
        CAIRN_PINS_MAX = 65536,            // on blocks, by all tenants
        CAIRN_PINS_TENANT_MAX = 32768,
        CAIRN_TENANTS_MAX = 1024,
        CAIRN_LEASE_MS_DEFAULT = 30 * 1000,
        CAIRN_LEASE_MS_MAX = 10 * 60 * 1000,
        CAIRN_FRAME_TIMEOUT_MS = 10 * 1000, // a frame begun and not finished
        CAIRN_SPACES_TENANT_MAX = 512,      // made by one tenant
        CAIRN_SPACES_MAX = 1024,
        CAIRN_NAME_BYTES_MAX = 128, // model, revision, layout, owner
        CAIRN_LAYERS_MAX = 256,
        CAIRN_KV_HEADS_MAX = 256,
        CAIRN_QUERY_HEADS_MAX = 1024,
        CAIRN_GROUP_MAX = 128, // query heads a KV head
        CAIRN_DIM_MAX = 576,
        CAIRN_BLOCK_TOKENS_MAX = 1024,
        CAIRN_CONTEXTS_MAX = 256, // a connection
        CAIRN_PAIRS_MAX = 512,    // (context, layer) pairs a Retrieve
        CAIRN_STEPS_MAX = 64,
        CAIRN_EXCLUDED_MAX = 64, // ranges a Retrieve
        CAIRN_ROWS_MAX = 65536,  // rows a head and step
        CAIRN_APPEND_TOKENS_MAX = 65536,
        CAIRN_PROXIES_MAX = 65536,  // tokens whose queries a Retain or Plan brings
        CAIRN_PROTECTED_MAX = 64,   // ranges a Retain or Plan, of proxies too
        CAIRN_BUDGETS_MAX = 64,     // a Plan
        CAIRN_CURVE_POINTS = 64,    // of a Plan's answer
        CAIRN_TEXT_BYTES_MAX = 512, // an error's text
        CAIRN_LIST_DEFAULT = 256,   // entries a page of an operator's list
        CAIRN_LIST_MAX = 1024,
        CAIRN_LIST_LOOKED_MAX = 65536, // blocks that one page looks at
};

#define CAIRN_ARENA_BYTES_MAX    (1ull << 40)
#define CAIRN_BLOCK_BYTES_MAX    (256ull << 20)
#define CAIRN_CONTEXT_TOKENS_MAX (16ull << 20)

#endif
