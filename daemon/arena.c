// Mapping of workers' memory.
#include "daemon/arena.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "proto/limits.h"
#include "proto/status.h"

#define REFUSE(ret_text, status, ...) \
        ((void)snprintf((ret_text), CAIRN_TEXT_BYTES_MAX, __VA_ARGS__), (status))

static int check_memfd(int descriptor, uint64_t size_bytes, char *ret_text)
{
        struct stat info;
        int seals;

        if (size_bytes == 0 || size_bytes > CAIRN_ARENA_BYTES_MAX)
                return REFUSE(ret_text, CAIRN_EINVAL,
                              "arena: size_bytes is %llu; it may be 1 to %llu",
                              (unsigned long long)size_bytes,
                              (unsigned long long)CAIRN_ARENA_BYTES_MAX);
        seals = fcntl(descriptor, F_GET_SEALS);
        if (seals < 0)
                return REFUSE(ret_text, CAIRN_EINVAL,
                              "arena: the descriptor is no memfd; make it by memfd_create with "
                              "MFD_ALLOW_SEALING");
        if (!(seals & F_SEAL_SHRINK))
                return REFUSE(
                    ret_text, CAIRN_EINVAL,
                    "arena: the memfd can still shrink; seal it by fcntl(fd, F_ADD_SEALS, "
                    "F_SEAL_SHRINK) before you register it");
        // The size is read after the seal was seen: it cannot get smaller any more.
        if (fstat(descriptor, &info) != 0)
                return REFUSE(ret_text, CAIRN_EINVAL, "arena: fstat: %s; pass a memfd",
                              strerror(errno));
        if ((uint64_t)info.st_size < size_bytes)
                return REFUSE(ret_text, CAIRN_EINVAL,
                              "arena: the memfd has %lld bytes, fewer than size_bytes %llu; "
                              "ftruncate it first",
                              (long long)info.st_size, (unsigned long long)size_bytes);
        return CAIRN_OK;
}

int cairn_arena_map(int descriptor, uint64_t size_bytes, struct cairn_arena **ret_arena,
                    char *ret_text)
{
        struct cairn_arena *arena;
        void *base;
        int status = check_memfd(descriptor, size_bytes, ret_text);

        if (status != CAIRN_OK)
                return status;
        base = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
        if (base == MAP_FAILED) {
                if (errno == EPERM || errno == EACCES)
                        return REFUSE(ret_text, CAIRN_EINVAL,
                                      "arena: the memfd cannot be mapped for writing; do not seal "
                                      "it against writing");
                return REFUSE(ret_text, CAIRN_ENOMEM,
                              "arena: mapping %llu bytes failed: %s; register a smaller one",
                              (unsigned long long)size_bytes, strerror(errno));
        }
        (void)madvise(base, size_bytes, MADV_DONTDUMP); // refused: a dump shows the worker's data
        arena = malloc(sizeof(*arena));
        if (!arena) {
                (void)munmap(base, size_bytes);
                return REFUSE(ret_text, CAIRN_ENOMEM, "arena: no memory; retry later");
        }
        *arena = (struct cairn_arena){.uses = 1, .base = base, .size_bytes = size_bytes};
        *ret_arena = arena;
        return CAIRN_OK;
}

void cairn_arena_ref(struct cairn_arena *arena)
{
        assert(arena->uses > 0);
        arena->uses++;
}

void cairn_arena_unref(struct cairn_arena *arena)
{
        if (!arena)
                return;
        assert(arena->uses > 0);
        if (--arena->uses > 0)
                return;
        (void)munmap(arena->base, arena->size_bytes); // fails only when misused
        free(arena);
}

int cairn_range_check(uint64_t size_bytes, uint64_t offset, uint64_t bytes)
{
        return offset <= size_bytes && bytes <= size_bytes - offset ? CAIRN_OK : CAIRN_ERANGE;
}
