// Bytes on their way to the daemon (rows of an Append, queries of a Retrieve): in an arena, staged,
// or inline.
#include "client/src/client.h"

#include <string.h>

uint64_t cairn_client_inline_max(const struct cairn_client *client)
{
        return client->payload_bytes_max < CAIRN_CLIENT_INLINE_BYTES ? client->payload_bytes_max
                                                                     : CAIRN_CLIENT_INLINE_BYTES;
}

int cairn_client_source_begin(struct cairn_client *client, const struct cairn_call *call,
                              const void *bytes, uint64_t size,
                              struct cairn_client_source *ret_source)
{
        struct cairn_arena *arena = cairn_client_arena_of(client, bytes, size);

        *ret_source = (struct cairn_client_source){
            .arena = arena,
            .at = bytes,
            .piece = {(void *)bytes, size},
        };
        if (arena || size <= cairn_client_inline_max(client))
                return CAIRN_OK;
        if (call) // nothing of the library's may stay in use after the call
                return size <= client->payload_bytes_max
                           ? CAIRN_OK
                           : cairn_client_fail(client, CAIRN_ERANGE,
                                               "%llu bytes do not fit into one request (%u may); "
                                               "let them lie in an arena",
                                               (unsigned long long)size, client->payload_bytes_max);
        arena = cairn_client_scratch(client, &client->staging, size);
        if (!arena)
                return size <= client->payload_bytes_max ? CAIRN_OK : CAIRN_ENOMEM; // text is set
        memcpy(arena->data, bytes, size);
        ret_source->arena = arena;
        ret_source->at = arena->data;
        return CAIRN_OK;
}

void cairn_client_source_end(struct cairn_client *client, const struct cairn_client_source *source,
                             int status)
{
        if (source->arena && source->arena == client->staging)
                cairn_client_scratch_drop(client, &client->staging, status);
}
