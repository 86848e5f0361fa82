// Quotas: read, kept, applied.
#include "daemon/quota.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/config.h"
#include "daemon/log.h"
#include "daemon/server.h"
#include "proto/bytes.h"
#include "proto/status.h"
#include "storage/legal.h"
#include "storage/note.h"

#define REFUSE(ret_why, ...) \
        ((void)snprintf((ret_why), CAIRN_TEXT_BYTES_MAX, __VA_ARGS__), CAIRN_EINVAL)

enum {
        ENTRY_BYTES = 256,
        NUMBERS = 4,
        VALUE_BYTES = NUMBERS * 8
};

static uint64_t *number_of(struct cairn_quota *quota, const char *name)
{
        uint64_t *const numbers[NUMBERS] = {&quota->ram_bytes, &quota->nvme_bytes,
                                            &quota->ram_guaranteed_bytes,
                                            &quota->nvme_guaranteed_bytes};
        static const char *const names[NUMBERS] = {"ram", "nvme", "ram_guaranteed",
                                                   "nvme_guaranteed"};

        for (int i = 0; i < NUMBERS; i++)
                if (strcmp(names[i], name) == 0)
                        return numbers[i];
        return NULL;
}

// ---- the configuration ----

static int parse_numbers(char *words, struct cairn_quota *ret_quota, char *ret_why)
{
        int count = 0;

        for (char *word; (word = strsep(&words, " \t"));) {
                char *value = strchr(word, '=');
                uint64_t *number;

                if (word[0] == '\0')
                        continue;
                if (value)
                        *value++ = '\0';
                number = value ? number_of(ret_quota, word) : NULL;
                if (!number)
                        return REFUSE(ret_why,
                                      "\"%.64s\": give ram=, nvme=, ram_guaranteed= or "
                                      "nvme_guaranteed= with bytes like 4GiB",
                                      word);
                if (cairn_config_parse_bytes(value, 0, number) != CAIRN_OK)
                        return REFUSE(ret_why, "%s=%.64s: give bytes like 4GiB", word, value);
                count++;
        }
        return count > 0 ? CAIRN_OK
                         : REFUSE(ret_why, "a tenant needs one limit or guarantee at least");
}

static int check_one(const struct cairn_quota *quota, bool fallback, char *ret_why)
{
        if (fallback && (quota->ram_guaranteed_bytes > 0 || quota->nvme_guaranteed_bytes > 0))
                return REFUSE(ret_why, "default: nothing can be guaranteed to tenants that are not "
                                       "known; name them");
        if ((quota->ram_bytes > 0 && quota->ram_guaranteed_bytes > quota->ram_bytes) ||
            (quota->nvme_bytes > 0 && quota->nvme_guaranteed_bytes > quota->nvme_bytes))
                return REFUSE(ret_why, "a guarantee is above the tenant's own limit; raise the "
                                       "limit or lower the guarantee");
        return CAIRN_OK;
}

static int parse_entry(char *entry, const struct cairn_tenants *tenants,
                       struct cairn_quota_table *table, char *ret_why)
{
        struct cairn_quota quota = {0};
        uint32_t tenant;
        char *name;
        bool fallback;

        entry += strspn(entry, " \t");
        name = strsep(&entry, " \t");
        fallback = strcmp(name, "default") == 0;
        if (!fallback && cairn_tenants_find(tenants, name, &tenant) != CAIRN_OK)
                return REFUSE(ret_why,
                              "no tenant \"%.64s\"; give a name of `tenants`, a uid, or default",
                              name);
        if (parse_numbers(entry, &quota, ret_why) != CAIRN_OK ||
            check_one(&quota, fallback, ret_why) != CAIRN_OK)
                return CAIRN_EINVAL;
        for (uint32_t i = 0; i < table->count; i++)
                if (!fallback && table->entries[i].tenant == tenant)
                        return REFUSE(ret_why, "%s is there twice; remove one", name);
        if (fallback && table->has_fallback)
                return REFUSE(ret_why, "default is there twice; remove one");
        if (table->count == CAIRN_QUOTAS_CONFIGURED_MAX)
                return REFUSE(ret_why, "more than %d tenants; set the others by cairnctl quota",
                              CAIRN_QUOTAS_CONFIGURED_MAX);
        if (fallback) {
                table->fallback = quota;
                table->has_fallback = true;
        } else {
                table->entries[table->count++] = (struct cairn_quota_entry){tenant, quota};
        }
        return CAIRN_OK;
}

static int check_sum(const char *tier, uint64_t sum, uint64_t bytes, char *ret_why)
{
        if (sum <= bytes)
                return CAIRN_OK;
        return REFUSE(ret_why,
                      "all guarantees of %s together are %llu bytes, and %s_bytes is %llu; lower "
                      "some, or raise it",
                      tier, (unsigned long long)sum, tier, (unsigned long long)bytes);
}

int cairn_quotas_parse(const char *text, const struct cairn_tenants *tenants, uint64_t ram_bytes,
                       uint64_t nvme_bytes, struct cairn_quota_table *ret_table, char *ret_why)
{
        struct cairn_quota_table table = {.count = 0};
        uint64_t ram_sum = 0, nvme_sum = 0;

        while (*(text += strspn(text, ", \t")) != '\0') {
                size_t size = strcspn(text, ",");
                char entry[ENTRY_BYTES];

                (void)snprintf(entry, sizeof(entry), "%.*s", (int)size, text);
                if (size >= sizeof(entry))
                        return REFUSE(ret_why, "\"%.64s...\" is too long", entry);
                if (parse_entry(entry, tenants, &table, ret_why) != CAIRN_OK)
                        return CAIRN_EINVAL;
                text += size;
        }
        for (uint32_t i = 0; i < table.count; i++) {
                ram_sum += table.entries[i].quota.ram_guaranteed_bytes;
                nvme_sum += table.entries[i].quota.nvme_guaranteed_bytes;
        }
        if (check_sum("ram", ram_sum, ram_bytes, ret_why) != CAIRN_OK ||
            check_sum("nvme", nvme_sum, nvme_bytes, ret_why) != CAIRN_OK)
                return CAIRN_EINVAL;
        *ret_table = table;
        return CAIRN_OK;
}

// ---- what was set ----

static void note_of(const uint32_t *tenant, const struct cairn_quota *quota,
                    struct cairn_note *ret_note)
{
        *ret_note = (struct cairn_note){.key_bytes = tenant ? 5 : 2,
                                        .value_bytes = quota ? VALUE_BYTES : 0};
        ret_note->key[0] = CAIRN_NOTE_QUOTA;
        if (tenant)
                cairn_put_u32(ret_note->key + 1, *tenant);
        else
                ret_note->key[1] = '*';
        if (!quota)
                return;
        cairn_put_u64(ret_note->value, quota->ram_bytes);
        cairn_put_u64(ret_note->value + 8, quota->nvme_bytes);
        cairn_put_u64(ret_note->value + 16, quota->ram_guaranteed_bytes);
        cairn_put_u64(ret_note->value + 24, quota->nvme_guaranteed_bytes);
}

static bool find_set(const struct cairn_server *server, const uint32_t *tenant,
                     struct cairn_quota *ret_quota)
{
        struct cairn_note wanted;
        const struct cairn_note *note;

        note_of(tenant, NULL, &wanted);
        note = cairn_store_note_find(server->store, wanted.key, wanted.key_bytes);
        if (!note || note->value_bytes != VALUE_BYTES)
                return false;
        *ret_quota = (struct cairn_quota){
            .ram_bytes = cairn_get_u64(note->value),
            .nvme_bytes = cairn_get_u64(note->value + 8),
            .ram_guaranteed_bytes = cairn_get_u64(note->value + 16),
            .nvme_guaranteed_bytes = cairn_get_u64(note->value + 24),
        };
        return true;
}

static enum cairn_quota_source configured(const struct cairn_server *server, const uint32_t *tenant,
                                          struct cairn_quota *ret_quota)
{
        const struct cairn_quota_table *table = &server->config->quota_table;

        for (uint32_t i = 0; tenant && i < table->count; i++) {
                if (table->entries[i].tenant == *tenant) {
                        *ret_quota = table->entries[i].quota;
                        return CAIRN_QUOTA_CONFIGURED;
                }
        }
        if (tenant)
                return cairn_quota_of(server, NULL, ret_quota) == CAIRN_QUOTA_NONE
                           ? CAIRN_QUOTA_NONE
                           : CAIRN_QUOTA_FALLBACK;
        *ret_quota = table->fallback;
        return table->has_fallback ? CAIRN_QUOTA_CONFIGURED : CAIRN_QUOTA_NONE;
}

enum cairn_quota_source cairn_quota_of(const struct cairn_server *server, const uint32_t *tenant,
                                       struct cairn_quota *ret_quota)
{
        *ret_quota = (struct cairn_quota){0};
        if (find_set(server, tenant, ret_quota))
                return CAIRN_QUOTA_SET;
        return configured(server, tenant, ret_quota);
}

const char *cairn_quota_source_name(enum cairn_quota_source source)
{
        static const char *const names[] = {"none", "default", "configuration", "set"};

        return names[source];
}

// ---- applying ----

static void apply_one(struct cairn_server *server, uint32_t tenant)
{
        struct cairn_quota quota;
        int status;

        (void)cairn_quota_of(server, &tenant, &quota); // none: no limits
        status = cairn_store_quota_set(server->store, tenant, &quota);
        if (status != CAIRN_OK)
                cairn_log(CAIRN_LOG_WARNING,
                          status == CAIRN_EINVAL
                              ? "see cairnctl tenants; what operators set and what the "
                                "configuration says must fit together"
                              : cairn_status_remedy(status),
                          "the quota of tenant %u is not in force: %s", tenant,
                          status == CAIRN_EINVAL ? "guarantees are above the tier"
                                                 : cairn_status_text(status));
}

static void on_note(void *arg, const struct cairn_note *note)
{
        if (note->key_bytes == 5)
                apply_one(arg, cairn_get_u32(note->key + 1));
}

void cairn_quotas_apply(struct cairn_server *server)
{
        const struct cairn_quota_table *table = &server->config->quota_table;
        const struct cairn_quota none = {0};

        // Guarantees that are no more make room for those that come.
        for (size_t i = 0; i < cairn_store_tenants_count(server->store); i++) {
                struct cairn_store_tenant_info info;

                cairn_store_tenant_info(server->store, i, &info);
                if (info.quota.ram_guaranteed_bytes > 0 || info.quota.nvme_guaranteed_bytes > 0)
                        (void)cairn_store_quota_set(server->store, info.tenant, &none); // known
        }
        cairn_store_notes_visit(server->store, CAIRN_NOTE_QUOTA, on_note, server);
        for (uint32_t i = 0; i < table->count; i++)
                apply_one(server, table->entries[i].tenant);
        for (size_t i = 0; i < cairn_store_tenants_count(server->store); i++) {
                struct cairn_store_tenant_info info;

                cairn_store_tenant_info(server->store, i, &info);
                apply_one(server, info.tenant);
        }
}

void cairn_quotas_connected(struct cairn_server *server, uint32_t tenant)
{
        struct cairn_quota quota;

        for (size_t i = 0; i < cairn_store_tenants_count(server->store); i++) {
                struct cairn_store_tenant_info info;

                cairn_store_tenant_info(server->store, i, &info);
                if (info.tenant == tenant)
                        return; // has what it is to have
        }
        if (cairn_quota_of(server, &tenant, &quota) != CAIRN_QUOTA_NONE)
                apply_one(server, tenant);
}

// ---- setting ----

struct setting {
        struct cairn_server *server;
        uint32_t tenant;
        bool fallback;
        void (*on_set)(void *arg, int status);
        void *arg;
};

static void on_kept(void *arg, int status)
{
        struct setting setting = *(struct setting *)arg;

        free(arg);
        // The default reaches those that have no own; a note that failed takes back what was tried.
        if (setting.fallback)
                cairn_quotas_apply(setting.server);
        else
                apply_one(setting.server, setting.tenant);
        setting.on_set(setting.arg, status);
}

// Why the store refused: the guarantees of the others.
static int refuse_sum(const struct cairn_server *server, uint32_t tenant,
                      const struct cairn_quota *quota, char *ret_why)
{
        uint64_t ram_bytes = quota->ram_guaranteed_bytes;
        uint64_t nvme_bytes = quota->nvme_guaranteed_bytes;

        for (size_t i = 0; i < cairn_store_tenants_count(server->store); i++) {
                struct cairn_store_tenant_info info;

                cairn_store_tenant_info(server->store, i, &info);
                if (info.tenant == tenant)
                        continue;
                ram_bytes += info.quota.ram_guaranteed_bytes;
                nvme_bytes += info.quota.nvme_guaranteed_bytes;
        }
        if (check_sum("ram", ram_bytes, server->config->ram_bytes, ret_why) != CAIRN_OK ||
            check_sum("nvme", nvme_bytes, server->config->nvme_bytes, ret_why) != CAIRN_OK)
                return CAIRN_EINVAL;
        return REFUSE(ret_why, "the store refuses this quota; see cairnctl tenants");
}

int cairn_quota_set(struct cairn_server *server, const uint32_t *tenant,
                    const struct cairn_quota *quota, void (*on_set)(void *arg, int status),
                    void *arg, char *ret_why)
{
        struct setting *setting;
        struct cairn_note note;
        int status;

        if (quota && check_one(quota, tenant == NULL, ret_why) != CAIRN_OK)
                return CAIRN_EINVAL;
        setting = malloc(sizeof(*setting));
        if (!setting)
                return CAIRN_ENOMEM;
        if (tenant && quota) {
                status = cairn_store_quota_set(server->store, *tenant, quota);
                if (status != CAIRN_OK) {
                        free(setting);
                        return status == CAIRN_EINVAL ? refuse_sum(server, *tenant, quota, ret_why)
                                                      : status;
                }
        }
        *setting = (struct setting){.server = server,
                                    .tenant = tenant ? *tenant : 0,
                                    .fallback = tenant == NULL,
                                    .on_set = on_set,
                                    .arg = arg};
        note_of(tenant, quota, &note);
        cairn_store_note_set(server->store, &note, on_kept, setting);
        return CAIRN_OK;
}

void cairn_quota_explain_holds(const struct cairn_server *server, char *ret_why)
{
        uint64_t held = cairn_store_held_blocks(server->store);

        ret_why[0] = '\0';
        if (held > 0)
                (void)snprintf(ret_why, CAIRN_TEXT_BYTES_MAX,
                               "the tier is full, and %llu blocks in it are under legal hold and "
                               "cannot leave; add room, or have the operator lift a hold",
                               (unsigned long long)held);
}
