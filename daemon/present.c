// Rows that were dropped from a context, or demoted: who reads the bits, and until when.
#include <assert.h>
#include <stdlib.h>

#include "daemon/context.h"
#include "daemon/server.h"
#include "proto/status.h"

struct cairn_present_replaced {
        struct cairn_present_replaced *next;
        struct cairn_present *present;
};

int cairn_present_create(struct cairn_server *server, const struct cairn_space_entry *entry,
                         uint64_t tokens, struct cairn_present **ret_present)
{
        uint64_t limit = server->config->context_bytes;
        uint64_t words = (tokens + 63) / 64;
        uint64_t count = words * entry->space.layers * entry->space.kv_heads;
        struct cairn_present *present;
        uint64_t bytes = sizeof(*present) + count * sizeof(present->bits[0]);

        if (bytes > limit || server->counters.context_bytes > limit - bytes)
                return CAIRN_ENOMEM;
        present = calloc(1, bytes); // pages come as scorers fill them
        if (!present)
                return CAIRN_ENOMEM;
        present->uses = 1;
        present->end = tokens;
        present->words = words;
        present->bytes = bytes;
        server->counters.context_bytes += bytes;
        *ret_present = present;
        return CAIRN_OK;
}

void cairn_present_unref(struct cairn_server *server, struct cairn_present *present)
{
        if (!present)
                return;
        assert(present->uses > 0);
        if (--present->uses > 0)
                return;
        server->counters.context_bytes -= present->bytes;
        free(present);
}

uint64_t *cairn_present_bits(const struct cairn_present *present,
                             const struct cairn_space_entry *entry, uint32_t layer, uint32_t head)
{
        if (!present)
                return NULL;
        return (uint64_t *)present->bits +
               ((uint64_t)layer * entry->space.kv_heads + head) * present->words;
}

// *slot becomes `bits`; what it was is kept while requests may read it.
static int replace(struct cairn_context *context, struct cairn_present **slot,
                   struct cairn_present *bits)
{
        struct cairn_present_replaced *replaced;

        if (*slot) {
                replaced = malloc(sizeof(*replaced));
                if (!replaced)
                        return CAIRN_ENOMEM;
                *replaced =
                    (struct cairn_present_replaced){.next = context->replaced, .present = *slot};
                context->replaced = replaced;
        }
        *slot = bits;
        return CAIRN_OK;
}

int cairn_context_drop(struct cairn_context *context, struct cairn_present *present)
{
        struct cairn_present *demoted = context->demoted;
        int status = replace(context, &context->demoted, NULL);

        if (status != CAIRN_OK)
                return status;
        status = replace(context, &context->present, present);
        if (status == CAIRN_OK)
                return CAIRN_OK;
        if (demoted) { // as it was
                demoted->uses++;
                context->demoted = demoted;
        }
        return status;
}

int cairn_context_demote(struct cairn_context *context, struct cairn_present *demoted)
{
        return replace(context, &context->demoted, demoted);
}

void cairn_context_forget_replaced(struct cairn_context *context)
{
        while (context->replaced) {
                struct cairn_present_replaced *next = context->replaced->next;

                cairn_present_unref(context->server, context->replaced->present);
                free(context->replaced);
                context->replaced = next;
        }
}
