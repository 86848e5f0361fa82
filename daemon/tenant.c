// Names of tenants.
#include "daemon/tenant.h"

#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/limits.h"
#include "proto/status.h"

#define REFUSE(ret_why, ...) \
        ((void)snprintf((ret_why), CAIRN_TEXT_BYTES_MAX, __VA_ARGS__), CAIRN_EINVAL)

enum {
        WORD_BYTES = 256,
        UID_DIGITS_MAX = 10
};

static int parse_number(const char *word, uint32_t *ret_number)
{
        size_t digits = strspn(word, "0123456789");
        unsigned long long number = strtoull(word, NULL, 10);

        if (digits == 0 || word[digits] != '\0' || digits > UID_DIGITS_MAX || number >= UINT32_MAX)
                return CAIRN_EINVAL;
        *ret_number = (uint32_t)number;
        return CAIRN_OK;
}

static int parse_uid(const char *word, uint32_t *ret_uid)
{
        const struct passwd *entry;

        if (parse_number(word, ret_uid) == CAIRN_OK)
                return CAIRN_OK;
        entry = word[0] != '\0' ? getpwnam(word) : NULL;
        if (!entry)
                return CAIRN_EINVAL;
        *ret_uid = entry->pw_uid;
        return CAIRN_OK;
}

static bool is_letter(char c)
{
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_name(const char *name)
{
        size_t size = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                   "0123456789-_");

        return is_letter(name[0]) && name[size] == '\0' && size < CAIRN_TENANT_NAME_BYTES &&
               strcmp(name, "default") != 0;
}

static int add_uid(struct cairn_tenants *tenants, const char *name, uint32_t uid, char *ret_why)
{
        uint32_t tenant = uid;

        if (tenants->count == CAIRN_TENANT_UIDS_MAX)
                return REFUSE(ret_why, "more than %d users; name fewer", CAIRN_TENANT_UIDS_MAX);
        for (uint32_t i = tenants->count; i-- > 0;) { // the first of the name comes last
                if (tenants->uids[i].uid == uid)
                        return REFUSE(ret_why,
                                      "uid %u is there twice, as %s and %s; a user has "
                                      "one tenant",
                                      uid, tenants->uids[i].name, name);
                if (strcmp(tenants->uids[i].name, name) == 0)
                        tenant = tenants->uids[i].tenant;
        }
        tenants->uids[tenants->count] = (struct cairn_tenant_uid){.uid = uid, .tenant = tenant};
        memcpy(tenants->uids[tenants->count++].name, name, strlen(name) + 1);
        return CAIRN_OK;
}

// One "name:uid+uid".
static int parse_entry(char *entry, struct cairn_tenants *tenants, char *ret_why)
{
        char *uids = strchr(entry, ':');
        uint32_t uid;

        if (uids)
                *uids++ = '\0';
        if (!uids || !is_name(entry))
                return REFUSE(ret_why,
                              "\"%.64s\": give name:uid, or name:uid+uid; a name is a letter, then "
                              "letters, digits, - or _, up to %d bytes",
                              entry, CAIRN_TENANT_NAME_BYTES - 1);
        for (char *word; (word = strsep(&uids, "+"));) {
                if (parse_uid(word, &uid) != CAIRN_OK)
                        return REFUSE(ret_why, "%s: no user \"%.64s\" here", entry, word);
                if (add_uid(tenants, entry, uid, ret_why) != CAIRN_OK)
                        return CAIRN_EINVAL;
        }
        return CAIRN_OK;
}

int cairn_tenants_parse(const char *text, struct cairn_tenants *ret_tenants, char *ret_why)
{
        struct cairn_tenants tenants = {.count = 0};

        while (*(text += strspn(text, ", \t")) != '\0') {
                size_t size = strcspn(text, ", \t");
                char entry[WORD_BYTES];

                (void)snprintf(entry, sizeof(entry), "%.*s", (int)size, text);
                if (size >= sizeof(entry))
                        return REFUSE(ret_why, "\"%.64s...\" is too long", entry);
                if (parse_entry(entry, &tenants, ret_why) != CAIRN_OK)
                        return CAIRN_EINVAL;
                text += size;
        }
        *ret_tenants = tenants;
        return CAIRN_OK;
}

uint32_t cairn_tenants_of_uid(const struct cairn_tenants *tenants, uint32_t uid)
{
        for (uint32_t i = 0; i < tenants->count; i++)
                if (tenants->uids[i].uid == uid)
                        return tenants->uids[i].tenant;
        return uid;
}

int cairn_tenants_find(const struct cairn_tenants *tenants, const char *text, uint32_t *ret_tenant)
{
        for (uint32_t i = 0; i < tenants->count; i++) {
                if (strcmp(tenants->uids[i].name, text) == 0) {
                        *ret_tenant = tenants->uids[i].tenant;
                        return CAIRN_OK;
                }
        }
        return parse_number(text, ret_tenant) == CAIRN_OK ? CAIRN_OK : CAIRN_ENOENT;
}

void cairn_tenants_name(const struct cairn_tenants *tenants, uint32_t tenant,
                        char ret_name[CAIRN_TENANT_NAME_BYTES])
{
        for (uint32_t i = 0; i < tenants->count; i++) {
                if (tenants->uids[i].tenant == tenant) {
                        memcpy(ret_name, tenants->uids[i].name, CAIRN_TENANT_NAME_BYTES);
                        return;
                }
        }
        (void)snprintf(ret_name, CAIRN_TENANT_NAME_BYTES, "%u", tenant);
}
