// The plain model that the simulated store is held against: for each key, which versions may be
// read. Used by: tests/sim. Threads: one.
#ifndef CAIRN_SIM_STORE_MODEL_H
#define CAIRN_SIM_STORE_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/key.h"

enum {
        MODEL_NONE = 0,
        MODEL_UNKNOWN = UINT32_MAX
};

// Versions of a key count from 1.
struct model_key {
        uint32_t last;    // the newest that was ever begun
        uint32_t least;   // older ones must never be read again
        uint32_t visible; // what a read may give; MODEL_NONE: a miss; MODEL_UNKNOWN: a crash lets
                          // it be any since least
        uint32_t durable; // acknowledged on disk, and no delete begun: must be found if nothing is
                          // evicted
        bool remembered;  // acknowledged in memory: must be found until a crash
        uint32_t epoch;   // changes with every put, delete and crash
};

// What the model knew of a key when a block was held: that is what its bytes are held against.
struct model_view {
        uint32_t least;
        uint32_t visible;
        uint32_t epoch;
};

struct model {
        struct model_key *keys;
        uint32_t keys_count;
        bool exact; // nothing is evicted and nothing fails: what was acknowledged must be found
};

void model_begun(struct model *model, uint32_t key, uint32_t version);
void model_committed(struct model *model, uint32_t key, uint32_t version, bool disk);
// Returns the version that the delete ends: at least that one.
uint32_t model_delete_begun(struct model *model, uint32_t key);
void model_deleted(struct model *model, uint32_t key, uint32_t version, bool done);
void model_crashed(struct model *model);
void model_drained(struct model *model); // what was remembered is durable
// Holds a miss, or a read of this version, against the model. NULL, or what is wrong.
const char *model_missed(struct model *model, uint32_t key);
struct model_view model_view(const struct model *model, uint32_t key);
const char *model_read(struct model *model, uint32_t key, uint32_t version,
                       const struct model_view *view);

#endif
