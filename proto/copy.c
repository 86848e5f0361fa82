// Non-temporal stores by what the compilers offer for every x86-64; elsewhere it is memcpy.
#include "proto/copy.h"

#include <stdint.h>
#include <string.h>

#if defined(__SSE2__)

enum {
        LINE_BYTES = 64
};

typedef long long vector __attribute__((vector_size(16)));

static inline void store_past(void *to, vector value)
{
#if defined(__clang__)
        __builtin_nontemporal_store(value, (vector *)to);
#else
        __builtin_ia32_movntdq((vector *)to, value);
#endif
}

void cairn_copy_past_caches(void *restrict to, const void *restrict from, size_t size)
{
        uint8_t *out = to;
        const uint8_t *in = from;
        size_t head = (LINE_BYTES - (uintptr_t)out % LINE_BYTES) % LINE_BYTES;

        if (size < 4 * LINE_BYTES) {
                memcpy(to, from, size);
                return;
        }
        memcpy(out, in, head); // whole lines are written at once
        out += head;
        in += head;
        size -= head;
        for (; size >= LINE_BYTES; size -= LINE_BYTES) {
                vector line[LINE_BYTES / sizeof(vector)];

                memcpy(line, in, sizeof(line));
                store_past(out, line[0]);
                store_past(out + 16, line[1]);
                store_past(out + 32, line[2]);
                store_past(out + 48, line[3]);
                out += LINE_BYTES;
                in += LINE_BYTES;
        }
        memcpy(out, in, size);
        __builtin_ia32_sfence(); // such stores are not ordered with others
}

#else

void cairn_copy_past_caches(void *restrict to, const void *restrict from, size_t size)
{
        memcpy(to, from, size);
}

#endif
