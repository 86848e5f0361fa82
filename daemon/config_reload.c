// Reload: the configuration once more from where it came, into a daemon that runs.
#include <stdio.h>
#include <string.h>

#include "daemon/config.h"
#include "daemon/config_table.h"
#include "proto/status.h"

static const char *text_of(const struct cairn_config *config, size_t key)
{
        return config->texts[key] ? config->texts[key] : cairn_config_default_text(config, key);
}

static void add_name(char *list, const char *name)
{
        size_t used = strlen(list);

        (void)snprintf(list + used, CAIRN_TEXT_BYTES_MAX / 2 - used, "%s%s", used ? ", " : "",
                       name); // a list cut short still says that there are some
}

// The key's value, text and source change hands; `next` frees what the daemon used until now.
static void take(struct cairn_config *config, struct cairn_config *next, size_t key)
{
        size_t offset = cairn_config_keys[key].offset;
        enum cairn_config_source source = config->sources[key];
        char *text = config->texts[key];

        config->texts[key] = next->texts[key];
        config->sources[key] = next->sources[key];
        next->texts[key] = text;
        next->sources[key] = source;
        memcpy((uint8_t *)config + offset, (const uint8_t *)next + offset, sizeof(uint64_t));
}

static void take_live(struct cairn_config *config, struct cairn_config *next, char *changed,
                      char *restart)
{
        for (size_t i = 0; i < cairn_config_keys_count; i++) {
                if (strcmp(text_of(config, i), text_of(next, i)) == 0)
                        continue;
                if (cairn_config_keys[i].live)
                        take(config, next, i);
                add_name(cairn_config_keys[i].live ? changed : restart, cairn_config_keys[i].name);
        }
        config->access = next->access;
        config->tenants_named = next->tenants_named;
        config->quota_table = next->quota_table;
}

int cairn_config_reload(struct cairn_config *config, char *ret_text)
{
        char changed[CAIRN_TEXT_BYTES_MAX / 2] = "";
        char restart[CAIRN_TEXT_BYTES_MAX / 2] = "";
        enum cairn_config_action action;
        struct cairn_config next;
        int status;

        cairn_config_init(&next);
        status = cairn_config_load(&next, config->argc, config->argv, config->environment, &action,
                                   ret_text);
        if (status == CAIRN_OK)
                status = cairn_config_resolve(&next, ret_text);
        if (status == CAIRN_OK) {
                take_live(config, &next, changed, restart);
                (void)snprintf(ret_text, CAIRN_TEXT_BYTES_MAX, "%s%s%s%s",
                               changed[0] ? "changed: " : "nothing changed", changed,
                               restart[0] ? "; need a restart: " : "", restart);
        }
        cairn_config_finish(&next);
        return status;
}
