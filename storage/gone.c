// Why blocks left.
#include "storage/gone.h"

#include <stdlib.h>
#include <string.h>

// A tag: the hash without its low byte, which holds the reason. 0: free.
struct cairn_gone {
        uint64_t tags[CAIRN_GONE_MAX];
};

static uint64_t hash(uint32_t space, const struct cairn_key *key)
{
        uint64_t words[2];

        memcpy(words, key->bytes, sizeof(words));
        words[0] ^= words[1] + space * UINT64_C(0x9E3779B97F4A7C15);
        words[0] ^= words[0] >> 32;
        return words[0] * UINT64_C(0xD6E8FEB86659FD93);
}

static size_t place(uint64_t hashed)
{
        return (size_t)(hashed >> 48) & (CAIRN_GONE_MAX - 1);
}

void cairn_gone_note(struct cairn_gone **gone, uint32_t space, const struct cairn_key *key,
                     enum cairn_audit_reason reason)
{
        uint64_t hashed = hash(space, key);

        if (!*gone)
                *gone = calloc(1, sizeof(**gone));
        if (*gone) // else numbers are less exact
                (*gone)->tags[place(hashed)] = (hashed & ~UINT64_C(0xff)) | (uint8_t)reason;
}

enum cairn_audit_reason cairn_gone_reason(const struct cairn_gone *gone, uint32_t space,
                                          const struct cairn_key *key)
{
        uint64_t hashed = hash(space, key);
        uint64_t tag = gone ? gone->tags[place(hashed)] : 0;

        if (tag == 0 || (tag ^ hashed) >> 8 != 0)
                return (enum cairn_audit_reason)0;
        return (enum cairn_audit_reason)(tag & 0xff);
}

void cairn_gone_destroy(struct cairn_gone *gone)
{
        free(gone);
}
