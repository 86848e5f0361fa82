// Arenas: sealed memfds shared with the daemon, and the library's own ones for plain memory.
#include "client/src/client.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
        PAGE_BYTES = 4096
};

static int decode_register(struct cairn_client *client, struct cairn_client_request *request,
                           const void *message, const uint8_t *payload, size_t payload_bytes)
{
        const Cairn__RegisterArenaReply *reply = message;

        (void)client, (void)payload, (void)payload_bytes; // it has no payload
        if (reply->arena == 0)
                return CAIRN_EPROTO; // 0 means: no arena
        *request->outputs.ret_arena = reply->arena;
        return CAIRN_OK;
}

int cairn_client_arena_register(struct cairn_client *client, struct cairn_arena *arena)
{
        Cairn__RegisterArenaRequest message = CAIRN__REGISTER_ARENA_REQUEST__INIT;
        struct cairn_client_submission submission = {
            .kind = CAIRN_KIND_REGISTER_ARENA,
            .message = &message,
            .fd = arena->fd,
            .decode = decode_register,
            .outputs.ret_arena = &arena->wire_id,
        };

        message.size_bytes = arena->bytes;
        return cairn_client_submit_quietly(client, &submission);
}

static void destroy_memory(struct cairn_arena *arena)
{
        if (!arena)
                return;
        if (arena->data)
                (void)munmap(arena->data, arena->bytes);
        if (arena->fd >= 0)
                (void)close(arena->fd);
        free(arena);
}

// A memfd that can neither shrink nor grow, mapped.
static int create_memory(struct cairn_client *client, uint64_t bytes,
                         struct cairn_arena **ret_arena)
{
        struct cairn_arena *arena = calloc(1, sizeof(*arena));
        const char *what = "memory";
        int error;

        if (!arena)
                return cairn_client_fail(client, CAIRN_ENOMEM, NULL);
        arena->client = client;
        arena->bytes = (bytes + PAGE_BYTES - 1) & ~(uint64_t)(PAGE_BYTES - 1);
        arena->fd = memfd_create("cairn-arena", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        if (arena->fd < 0) {
                what = "memfd_create";
                goto fail;
        }
        if (ftruncate(arena->fd, (off_t)arena->bytes) != 0 ||
            fcntl(arena->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
                what = "sizing and sealing a memfd";
                goto fail;
        }
        arena->data = mmap(NULL, arena->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, arena->fd, 0);
        if (arena->data == MAP_FAILED) {
                arena->data = NULL;
                what = "mmap";
                goto fail;
        }
        *ret_arena = arena;
        return CAIRN_OK;
fail:
        error = errno;
        destroy_memory(arena);
        return cairn_client_fail(client, cairn_status_from_errno(error),
                                 "an arena of %llu bytes: %s: %s; ask for less, or free memory",
                                 (unsigned long long)bytes, what, strerror(error));
}

// Makes an arena known here and to the daemon. Blocks.
static int create_arena(struct cairn_client *client, uint64_t bytes, struct cairn_arena **ret_arena)
{
        struct cairn_arena *arena = NULL;
        int status;

        if (client->in_callback)
                return cairn_client_fail(client, CAIRN_EBUSY,
                                         "an arena is created inside on_done; do it outside");
        if (bytes == 0 || bytes > CAIRN_ARENA_BYTES_MAX)
                return cairn_client_fail(client, CAIRN_EINVAL,
                                         "an arena of %llu bytes; it may have 1 to %llu",
                                         (unsigned long long)bytes,
                                         (unsigned long long)CAIRN_ARENA_BYTES_MAX);
        status = cairn_client_ready(client);
        if (status != CAIRN_OK)
                return status;
        status = create_memory(client, bytes, &arena);
        if (status != CAIRN_OK)
                return status;
        status = cairn_client_arena_register(client, arena);
        if (status != CAIRN_OK) {
                destroy_memory(arena);
                return status;
        }
        arena->next = client->arenas;
        client->arenas = arena;
        *ret_arena = arena;
        return CAIRN_OK;
}

int cairn_client_arena_create(struct cairn_client *client, uint64_t bytes,
                              struct cairn_arena **ret_arena)
{
        int status = create_arena(client, bytes, ret_arena);

        if (cairn_client_may_retry(client, NULL, status))
                status = create_arena(client, bytes, ret_arena);
        return status;
}

// The connection may be gone, or the daemon slow: the arena is ours to unmap all the same.
static void unregister(struct cairn_client *client, const struct cairn_arena *arena)
{
        Cairn__ReleaseArenaRequest message = CAIRN__RELEASE_ARENA_REQUEST__INIT;
        struct cairn_client_submission submission = {
            .kind = CAIRN_KIND_RELEASE_ARENA,
            .message = &message,
            .decode = cairn_client_decode_nothing,
        };

        if (client->socket_fd < 0)
                return;
        message.arena = arena->wire_id;
        (void)cairn_client_submit_quietly(client, &submission); // see above
}

int cairn_client_arena_destroy(struct cairn_client *client, struct cairn_arena *arena)
{
        struct cairn_arena **link = &client->arenas;

        if (!arena)
                return CAIRN_OK;
        assert(arena->client == client);
        if (client->in_callback)
                return cairn_client_fail(client, CAIRN_EBUSY,
                                         "an arena is destroyed inside on_done; do it outside");
        if (arena->users > 0)
                return cairn_client_fail(client, CAIRN_EBUSY,
                                         "%u requests use the arena; poll until they have ended",
                                         arena->users);
        while (*link != arena)
                link = &(*link)->next;
        *link = arena->next;
        unregister(client, arena);
        destroy_memory(arena);
        return CAIRN_OK;
}

void cairn_client_arenas_finish(struct cairn_client *client)
{
        while (client->arenas) {
                struct cairn_arena *arena = client->arenas;

                client->arenas = arena->next;
                destroy_memory(arena);
        }
        client->staging = client->results = NULL;
}

void *cairn_client_arena_data(const struct cairn_arena *arena)
{
        return arena->data;
}

uint64_t cairn_client_arena_bytes(const struct cairn_arena *arena)
{
        return arena->bytes;
}

struct cairn_arena *cairn_client_arena_of(const struct cairn_client *client, const void *at,
                                          uint64_t bytes)
{
        uintptr_t first = (uintptr_t)at;

        for (struct cairn_arena *arena = client->arenas; arena; arena = arena->next) {
                uintptr_t base = (uintptr_t)arena->data;

                if (first >= base && first - base <= arena->bytes &&
                    bytes <= arena->bytes - (first - base))
                        return arena;
        }
        return NULL;
}

struct cairn_arena *cairn_client_scratch(struct cairn_client *client, struct cairn_arena **slot,
                                         uint64_t bytes)
{
        struct cairn_arena *arena = NULL;

        if (*slot && (*slot)->bytes >= bytes)
                return *slot;
        if (*slot && cairn_client_arena_destroy(client, *slot) != CAIRN_OK)
                return NULL; // in use by a call that is under way
        *slot = NULL;
        if (create_arena(client, bytes, &arena) != CAIRN_OK)
                return NULL;
        *slot = arena;
        return arena;
}

void cairn_client_scratch_drop(struct cairn_client *client, struct cairn_arena **slot, int status)
{
        if (status != CAIRN_EDEADLINE && status != CAIRN_EDISCONNECTED)
                return;
        if (*slot && cairn_client_arena_destroy(client, *slot) == CAIRN_OK)
                *slot = NULL;
}

void cairn_client_region_set(Cairn__Region *region, const struct cairn_arena *arena, const void *at,
                             uint64_t bytes)
{
        cairn__region__init(region);
        region->bytes = bytes;
        if (!arena)
                return; // in the payload, from its first byte
        region->arena = arena->wire_id;
        region->offset = (uint64_t)((const uint8_t *)at - arena->data);
}
