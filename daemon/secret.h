// Memory for tenants' data: left out of core dumps. Small pieces (below CAIRN_SECRET_BYTES_MIN) are
// ordinary memory. May be used by: daemon. May use: nothing. Threads: any.
#ifndef CAIRN_SECRET_H
#define CAIRN_SECRET_H

#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>

enum {
        CAIRN_SECRET_BYTES_MIN = 64 * 1024,
        CAIRN_SECRET_PAGE_BYTES = 4096,
        CAIRN_SECRET_ALIGN_BYTES = 64
};

// Freed by free: what else comes to lie in these pages is then missing from a dump too, which harms
// nobody. NULL: no memory, or no bytes.
static inline void *cairn_secret_alloc(size_t bytes)
{
        size_t align =
            bytes < CAIRN_SECRET_BYTES_MIN ? CAIRN_SECRET_ALIGN_BYTES : CAIRN_SECRET_PAGE_BYTES;
        size_t rounded = (bytes + align - 1) & ~(align - 1);
        void *memory = rounded > 0 ? aligned_alloc(align, rounded) : NULL;

        if (memory && align == CAIRN_SECRET_PAGE_BYTES)
                (void)madvise(memory, rounded, MADV_DONTDUMP); // refused: a dump shows it
        return memory;
}

#endif
