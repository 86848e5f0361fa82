// libcairn, for operators: tenants and what they may take, legal holds. Anybody: purging one's own
// blocks, and what one may take oneself.
#ifndef CAIRN_TENANT_API_H
#define CAIRN_TENANT_API_H

#include "cairn/cairn.h"

#ifdef __cplusplus
extern "C" {
#endif

// ---- quotas ----

// 0: no limit; nothing guaranteed.
struct cairn_quota_limits {
        uint64_t ram_bytes;
        uint64_t nvme_bytes;
        uint64_t ram_guaranteed_bytes;
        uint64_t nvme_guaranteed_bytes;
};
// Numbers that a change leaves as they are.
enum {
        CAIRN_QUOTA_KEEP_RAM = 1,
        CAIRN_QUOTA_KEEP_NVME = 2,
        CAIRN_QUOTA_KEEP_RAM_GUARANTEED = 4,
        CAIRN_QUOTA_KEEP_NVME_GUARANTEED = 8,
};
struct cairn_tenant_info {
        const char *name;   // or the number in digits; "default": what those without their own have
        uint32_t tenant;    // a uid; UINT32_MAX: the default
        const char *source; // of the quota: "set", "configuration", "default" or "none"
        struct cairn_quota_limits quota;
        uint64_t ram_bytes; // used
        uint64_t nvme_bytes;
        uint64_t blocks;
        uint64_t evicted; // blocks
        uint64_t refused; // puts, by the quota
        uint32_t connections;
        bool held; // a legal hold is on all that it has
};

// Operators. tenant: a name of the configuration, a uid, or "default". In force and durable when it
// is answered: a limit that was lowered evicts the tenant's own blocks. ret_quota (may be NULL):
// what it is now. CAIRN_EINVAL: guarantees that do not fit, and the text says by how much.
CAIRN_API int cairn_set_quota(struct cairn_client *client, struct cairn_call *call,
                              const char *tenant, const struct cairn_quota_limits *limits,
                              uint32_t keep, struct cairn_quota_limits *ret_quota);
// Back to what the configuration says.
CAIRN_API int cairn_reset_quota(struct cairn_client *client, struct cairn_call *call,
                                const char *tenant, struct cairn_quota_limits *ret_quota);
// Operators: all tenants, then the default. Others: themselves. Texts live for the call.
CAIRN_API int cairn_list_tenants(struct cairn_client *client, struct cairn_call *call,
                                 void (*on_tenant)(void *arg, const struct cairn_tenant_info *info),
                                 void *arg);

// ---- legal holds: operators ----

// On a tenant (a name or uid), on a space, or on a chain: block `key` of a space and all that lies
// before it. What is under hold is neither evicted, nor expires, nor is deleted, purged or dropped.
struct cairn_hold_args {
        const char *name;            // of the hold, at most 64 bytes
        const char *note;            // may be NULL; at most 256 bytes
        const char *tenant;          // or NULL
        uint32_t space;              // the daemon's number (cairn_space_info.id), or 0
        const struct cairn_key *key; // or NULL
};
struct cairn_hold_info {
        const char *name;
        const char *note;
        const char *tenant; // "": not on a tenant
        uint32_t space;
        const struct cairn_key *key; // NULL: not on a chain
        uint64_t since_ms;           // since 1970
        uint64_t blocks;             // that it keeps now
};
// Durable when it is answered. ret_blocks (may be NULL): how many it keeps. CAIRN_EEXIST: the name
// is taken; CAIRN_ENOENT: no such tenant, space or block.
CAIRN_API int cairn_set_hold(struct cairn_client *client, struct cairn_call *call,
                             const struct cairn_hold_args *args, uint64_t *ret_blocks);
// ret_blocks: how many it kept.
CAIRN_API int cairn_lift_hold(struct cairn_client *client, struct cairn_call *call,
                              const char *name, uint64_t *ret_blocks);
CAIRN_API int cairn_list_holds(struct cairn_client *client, struct cairn_call *call,
                               void (*on_hold)(void *arg, const struct cairn_hold_info *info),
                               void *arg);

// ---- spaces and blocks ----

// Operators: a space that list_spaces showed, whoever's it is; an operator's own of that
// description would be another one.
CAIRN_API int cairn_client_open_stored_space(struct cairn_client *client,
                                             const struct cairn_space_info *info,
                                             uint32_t *ret_space);

// Deletes, and overwrites with zeros: in RAM, on NVMe, and old copies of blocks that were evicted
// or deleted before. As cairn_delete with purge. ret_pending (may be NULL): blocks that somebody
// still reads, which go when the last of these lets go. Statuses: CAIRN_OK; CAIRN_ENOENT: nothing
// was found; CAIRN_EHELD: pinned by others, or under legal hold (cairn_client_error says which).
CAIRN_API int cairn_purge(struct cairn_client *client, struct cairn_call *call, uint32_t space,
                          const struct cairn_key *keys, size_t count, int *ret_statuses,
                          uint32_t *ret_pending);

#ifdef __cplusplus
}
#endif

#endif
