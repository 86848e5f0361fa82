// Quotas of tenants: what the configuration says, what operators set while the daemon runs (kept in
// the catalog as notes), and the default for tenants that have none of their own. The store
// enforces them.
//
// A note (storage/note.h): key 'Q' and the tenant's number (u32), or 'Q' and '*' for the default;
// value: four u64: RAM, NVMe, guaranteed RAM, guaranteed NVMe.
// May be used by: daemon, tests. May use: proto, storage. Threads: the loop's.
#ifndef CAIRN_DAEMON_QUOTA_H
#define CAIRN_DAEMON_QUOTA_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/tenant.h"
#include "storage/store.h"

struct cairn_server;

enum {
        CAIRN_QUOTAS_CONFIGURED_MAX = 128
};

struct cairn_quota_entry {
        uint32_t tenant;
        struct cairn_quota quota;
};

// What `quotas` of the configuration says.
struct cairn_quota_table {
        struct cairn_quota_entry entries[CAIRN_QUOTAS_CONFIGURED_MAX];
        uint32_t count;
        struct cairn_quota fallback; // of those without one
        bool has_fallback;
};

enum cairn_quota_source {
        CAIRN_QUOTA_NONE = 0,
        CAIRN_QUOTA_FALLBACK,
        CAIRN_QUOTA_CONFIGURED,
        CAIRN_QUOTA_SET,
};

// "alice ram=4GiB nvme=100GiB ram_guaranteed=1GiB, default nvme=10GiB". The guarantees of all must
// fit into ram_bytes and nvme_bytes. CAIRN_EINVAL with a sentence in ret_why[CAIRN_TEXT_BYTES_MAX],
// and nothing changed.
int cairn_quotas_parse(const char *text, const struct cairn_tenants *tenants, uint64_t ram_bytes,
                       uint64_t nvme_bytes, struct cairn_quota_table *ret_table, char *ret_why);

// The quota that a tenant has, and from where. tenant NULL: the default.
enum cairn_quota_source cairn_quota_of(const struct cairn_server *server, const uint32_t *tenant,
                                       struct cairn_quota *ret_quota);
const char *cairn_quota_source_name(enum cairn_quota_source source);

// Hands the store what is in force: of all tenants, at the start and after a reload.
void cairn_quotas_apply(struct cairn_server *server);
// Of a tenant that has connected.
void cairn_quotas_connected(struct cairn_server *server, uint32_t tenant);

// In force at once, durable before the callback. tenant NULL: the default; quota NULL: back to the
// configuration. CAIRN_EINVAL with a sentence in ret_why[CAIRN_TEXT_BYTES_MAX]: then nothing
// changes and there is no callback. A callback with an error: it is not kept, nor in force.
int cairn_quota_set(struct cairn_server *server, const uint32_t *tenant,
                    const struct cairn_quota *quota, void (*on_set)(void *arg, int status),
                    void *arg, char *ret_why);

// Why a tier that no quota bounds has no room, in ret_why[CAIRN_TEXT_BYTES_MAX]; "" when holds are
// not to blame. Of quotas the store itself tells: cairn_store_refusal.
void cairn_quota_explain_holds(const struct cairn_server *server, char *ret_why);

#endif
