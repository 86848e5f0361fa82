// Auto-tuning of retention.
#include "daemon/tuning.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/log.h"
#include "daemon/server.h"

bool cairn_tuning_target(const char *text, const char *model, uint32_t *ret_permille)
{
        bool found = false;

        for (text += strspn(text, ", "); *text; text += strspn(text, ", ")) {
                size_t item = strcspn(text, ",");
                const char *equals = memrchr(text, '=', item);
                size_t name = equals ? (size_t)(equals - text) : 0;
                char *end = NULL;
                unsigned long value = equals ? strtoul(equals + 1, &end, 10) : 0;

                if (name == 0 || !isdigit((unsigned char)equals[1]) || value > 999 ||
                    end + strspn(end, " ") != text + item)
                        return false;
                if (model && strlen(model) == name && memcmp(model, text, name) == 0) {
                        *ret_permille = (uint32_t)value;
                        found = true;
                }
                text += item;
        }
        return found || !model;
}

static struct cairn_tune_options options_of(const struct cairn_server *server,
                                            const struct cairn_space_entry *entry)
{
        uint32_t permille = (uint32_t)server->config->retain_target_permille;

        (void)cairn_tuning_target(server->config->retain_targets, entry->space.model, &permille);
        return (struct cairn_tune_options){.target_mass = (double)permille / 1000};
}

void cairn_tuning_observe(struct cairn_server *server, const struct cairn_space_entry *entry,
                          const struct cairn_plan_head *plans, uint32_t heads)
{
        const struct cairn_tune_options options = options_of(server, entry);
        struct cairn_tune *state = &server->tuning.state[entry->index];
        struct cairn_tune_decision *last = &server->tuning.last[entry->index];
        uint64_t moves = state->moves;
        struct cairn_plan_total total;
        char text[CAIRN_TEXT_BYTES_MAX];

        if (options.target_mass <= 0)
                return;
        cairn_plan_total(plans, heads, options.target_mass, &total);
        cairn_tune_observe(state, &options, total.share, last);
        if (state->moves == moves)
                return;
        (void)cairn_tune_text(&options, last, text, sizeof(text)); // cut if it is long
        cairn_log(CAIRN_LOG_INFO, NULL, "space %u: %s", entry->id, text);
}

bool cairn_tuning_ratios(const struct cairn_server *server, const struct cairn_space_entry *entry,
                         struct cairn_nacl_options *ret_options)
{
        double share = server->tuning.state[entry->index].share;
        struct cairn_nacl_options like;

        if (options_of(server, entry).target_mass <= 0 || share <= 0)
                return false;
        cairn_nacl_defaults(&like);
        cairn_tune_ratios(share, &like, ret_options);
        return true;
}

bool cairn_tuning_text(const struct cairn_server *server, const struct cairn_space_entry *entry,
                       char *ret_text, size_t size)
{
        const struct cairn_tune_options options = options_of(server, entry);

        if (options.target_mass <= 0 || server->tuning.state[entry->index].seen == 0)
                return false;
        int start = snprintf(ret_text, size, "a Retain without shares in space %u ", entry->id);

        return cairn_tune_text(&options, &server->tuning.last[entry->index], ret_text + start,
                               size - (size_t)start) > 0;
}
