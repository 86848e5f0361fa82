// Tenants: who owns blocks and quota. A tenant is found from the peer's uid, never from what it
// claims: a uid is a tenant of its own, unless the configuration puts it under a name. A tenant's
// number is the uid, or the first one that its name lists: so that blocks keep their owner when
// names come and go.
// May be used by: daemon, tests. May use: proto. Threads: any; constant once parsed.
#ifndef CAIRN_TENANT_H
#define CAIRN_TENANT_H

#include <stdint.h>

enum {
        CAIRN_TENANT_UIDS_MAX = 256,
        CAIRN_TENANT_NAME_BYTES = 33, // with the final zero
};

struct cairn_tenant_uid {
        char name[CAIRN_TENANT_NAME_BYTES];
        uint32_t uid;
        uint32_t tenant;
};

struct cairn_tenants {
        struct cairn_tenant_uid uids[CAIRN_TENANT_UIDS_MAX];
        uint32_t count;
};

// "alice:1001, bob:1002+1003": names (letters, digits, '-', '_'; a letter first; not "default"),
// each with one uid or more, by number or user's name; every uid once. CAIRN_EINVAL with a sentence
// in ret_why[CAIRN_TEXT_BYTES_MAX], and nothing changed.
int cairn_tenants_parse(const char *text, struct cairn_tenants *ret_tenants, char *ret_why);

uint32_t cairn_tenants_of_uid(const struct cairn_tenants *tenants, uint32_t uid);
// A configured name, or a number. CAIRN_ENOENT.
int cairn_tenants_find(const struct cairn_tenants *tenants, const char *text, uint32_t *ret_tenant);
// The name, or the number in digits.
void cairn_tenants_name(const struct cairn_tenants *tenants, uint32_t tenant,
                        char ret_name[CAIRN_TENANT_NAME_BYTES]);

#endif
