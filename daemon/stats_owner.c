// Numbers by space and by tenant. Labels are bounded: the first ones have series of their own, in
// the order in which the store met them, and all others share one, named "other", so that counters
// never fall.
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "daemon/server.h"
#include "daemon/stats_walk.h"
#include "daemon/tenant.h"

enum {
        LABEL_BYTES = 512, // a model's name, every byte of it escaped
        SPACES_MAX = 128,
        TENANTS_MAX = 64
};

// ---- spaces ----

// Backslash, quote and line feed are escaped; other control bytes become '?'.
static void escape(const char *text, char *ret_text, size_t size)
{
        size_t at = 0;

        for (; *text != '\0' && at + 3 < size; text++) {
                if (*text == '\\' || *text == '"')
                        ret_text[at++] = '\\';
                ret_text[at++] = (unsigned char)*text < ' ' ? '?' : *text;
        }
        ret_text[at] = '\0';
}

static void label_space(const struct cairn_server *server, uint32_t id, char *ret_labels)
{
        const struct cairn_space_entry *entry = cairn_space_table_find(&server->spaces, id);
        char model[2 * CAIRN_NAME_BYTES_MAX + 4];
        char tenant[CAIRN_TENANT_NAME_BYTES] = "";

        escape(entry ? entry->space.model : "?", model, sizeof(model));
        if (entry && entry->owned)
                cairn_tenants_name(&server->config->tenants_named, entry->tenant, tenant);
        (void)snprintf(ret_labels, LABEL_BYTES, "space=\"%u\",model=\"%s\",tenant=\"%s\"", id,
                       model, tenant);
}

static void give_space_numbers(const struct cairn_stats_walk *walk,
                               const struct cairn_server *server, const char *name,
                               const char *help, size_t offset)
{
        size_t count = cairn_store_spaces_count(server->store);
        uint64_t others = 0;

        for (size_t i = 0; i < count; i++) {
                struct cairn_store_space_info info;
                char labels[LABEL_BYTES];
                uint64_t value;

                cairn_store_space_info(server->store, i, &info);
                memcpy(&value, (const uint8_t *)&info + offset, sizeof(value));
                if (i >= SPACES_MAX) {
                        others += value;
                        continue;
                }
                label_space(server, info.id, labels);
                cairn_stats_give(walk, name, "gauge", help, labels, (double)value);
        }
        if (count > SPACES_MAX)
                cairn_stats_give(walk, name, "gauge", help,
                                 "space=\"other\",model=\"\",tenant=\"\"", (double)others);
}

void cairn_stats_give_spaces(const struct cairn_stats_walk *walk, const struct cairn_server *server)
{
        give_space_numbers(walk, server, "cairn_space_blocks", "Blocks of a space.",
                           offsetof(struct cairn_store_space_info, blocks));
        give_space_numbers(walk, server, "cairn_space_ram_bytes", "RAM that a space's blocks use.",
                           offsetof(struct cairn_store_space_info, ram_bytes));
        give_space_numbers(walk, server, "cairn_space_nvme_bytes",
                           "NVMe that a space's blocks use.",
                           offsetof(struct cairn_store_space_info, nvme_bytes));
}

// ---- tenants ----

// One family of a tenant: where its number lies, and what it is called.
struct family {
        const char *name;
        const char *type;
        const char *help;
        const char *label; // beside the tenant's, or ""
        size_t offset;
};

#define AT(field) offsetof(struct cairn_store_tenant_info, field)
#define GONE(why, reason)                                                                      \
        {                                                                                      \
                "cairn_tenant_evicted_blocks_total", "counter",                                \
                    "Blocks of a tenant that were evicted, by reason.", ",reason=\"" why "\"", \
                    AT(evicted) + (reason) * sizeof(uint64_t)                                  \
        }

static const struct family families[] = {
    {"cairn_tenant_blocks", "gauge", "Blocks of a tenant.", "", AT(blocks)},
    {"cairn_tenant_used_bytes", "gauge", "Bytes of a tenant's blocks in a tier.", ",tier=\"ram\"",
     AT(ram_bytes)},
    {"cairn_tenant_used_bytes", "gauge", "Bytes of a tenant's blocks in a tier.", ",tier=\"nvme\"",
     AT(nvme_bytes)},
    {"cairn_tenant_quota_bytes", "gauge", "A tenant's quota in a tier; 0: none.", ",tier=\"ram\"",
     AT(quota.ram_bytes)},
    {"cairn_tenant_quota_bytes", "gauge", "A tenant's quota in a tier; 0: none.", ",tier=\"nvme\"",
     AT(quota.nvme_bytes)},
    GONE("capacity", CAIRN_AUDIT_CAPACITY),
    GONE("quota", CAIRN_AUDIT_OVER_QUOTA),
    GONE("expired", CAIRN_AUDIT_EXPIRED),
    GONE("admission", CAIRN_AUDIT_ADMISSION),
    {"cairn_tenant_demoted_blocks_total", "counter",
     "RAM copies of a tenant's blocks dropped that NVMe keeps.", "", AT(demoted)},
    {"cairn_tenant_refused_blocks_total", "counter", "Blocks of a tenant that were refused.",
     ",reason=\"quota\"", AT(refused_quota)},
    {"cairn_tenant_refused_blocks_total", "counter", "Blocks of a tenant that were refused.",
     ",reason=\"admission\"", AT(refused_admission)},
};

static void give_family(const struct cairn_stats_walk *walk, const struct cairn_server *server,
                        const struct family *family)
{
        size_t count = cairn_store_tenants_count(server->store);
        char labels[LABEL_BYTES];
        uint64_t others = 0;

        for (size_t i = 0; i < count; i++) {
                struct cairn_store_tenant_info info;
                char name[CAIRN_TENANT_NAME_BYTES];
                uint64_t value;

                cairn_store_tenant_info(server->store, i, &info);
                memcpy(&value, (const uint8_t *)&info + family->offset, sizeof(value));
                if (i >= TENANTS_MAX) {
                        others += value;
                        continue;
                }
                cairn_tenants_name(&server->config->tenants_named, info.tenant, name);
                (void)snprintf(labels, sizeof(labels), "tenant=\"%s\"%s", name, family->label);
                cairn_stats_give(walk, family->name, family->type, family->help, labels,
                                 (double)value);
        }
        if (count > TENANTS_MAX) {
                (void)snprintf(labels, sizeof(labels), "tenant=\"other\"%s", family->label);
                cairn_stats_give(walk, family->name, family->type, family->help, labels,
                                 (double)others);
        }
}

void cairn_stats_give_tenants(const struct cairn_stats_walk *walk,
                              const struct cairn_server *server)
{
        for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++)
                give_family(walk, server, &families[i]);
}
