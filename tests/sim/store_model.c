// The model's rules.
#include "store_model.h"

#include <stddef.h>

void model_begun(struct model *model, uint32_t key, uint32_t version)
{
        if (model->keys[key].last < version)
                model->keys[key].last = version;
}

void model_committed(struct model *model, uint32_t key, uint32_t version, bool disk)
{
        struct model_key *at = &model->keys[key];
        at->epoch++;
        at->visible = version;
        at->remembered = true;
        if (!disk)
                return;
        at->durable = version;
        at->least = version; // its record took the place of any older one
}

uint32_t model_delete_begun(struct model *model, uint32_t key)
{
        struct model_key *at = &model->keys[key];
        uint32_t version = at->visible == MODEL_UNKNOWN ? at->least : at->visible;
        at->epoch++;
        at->durable = MODEL_NONE;
        at->remembered = false;
        at->visible = MODEL_NONE;
        return version;
}

void model_deleted(struct model *model, uint32_t key, uint32_t version, bool done)
{
        struct model_key *at = &model->keys[key];
        if (done && at->least <= version)
                at->least = version + 1;
        // It may be back, unless a newer one is there.
        if (!done && at->visible == MODEL_NONE)
                at->visible = MODEL_UNKNOWN;
}

void model_crashed(struct model *model)
{
        for (uint32_t i = 0; i < model->keys_count; i++) {
                model->keys[i].epoch++;
                model->keys[i].visible = MODEL_UNKNOWN;
                model->keys[i].remembered = false;
        }
}

void model_drained(struct model *model)
{
        for (uint32_t i = 0; i < model->keys_count; i++) {
                if (model->keys[i].remembered)
                        model->keys[i].durable = model->keys[i].visible;
        }
}

const char *model_missed(struct model *model, uint32_t key)
{
        struct model_key *at = &model->keys[key];
        if (model->exact && at->durable != MODEL_NONE)
                return "a block that was acknowledged on disk is gone";
        if (model->exact && at->remembered)
                return "a block that was acknowledged in memory is gone without a crash";
        // An eviction whose record could not be removed may be taken back.
        if (at->visible != MODEL_NONE)
                at->visible = MODEL_UNKNOWN;
        return NULL;
}

struct model_view model_view(const struct model *model, uint32_t key)
{
        const struct model_key *at = &model->keys[key];
        return (struct model_view){at->least, at->visible, at->epoch};
}

const char *model_read(struct model *model, uint32_t key, uint32_t version,
                       const struct model_view *view)
{
        struct model_key *at = &model->keys[key];
        if (version < view->least)
                return "a version that was deleted or replaced for good is read again";
        if (version > at->last)
                return "a version that was never put is read";
        if (view->visible != MODEL_UNKNOWN && view->visible != version)
                return "another version than the visible one is read";
        if (view->epoch == at->epoch)
                at->visible = version;
        return NULL;
}
