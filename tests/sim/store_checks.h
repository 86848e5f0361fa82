// What the simulation holds beside the model: every block that vanished has exactly one record in
// the audit, quotas are never passed, what is under a legal hold stays. Used by: tests/sim.
// Threads: one.
#ifndef CAIRN_SIM_STORE_CHECKS_H
#define CAIRN_SIM_STORE_CHECKS_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/key.h"
#include "sim_random.h"
#include "storage/store.h"

enum {
        CHECKS_KEYS_MAX = 512,
        CHECKS_TENANTS = 2,
};

struct checks_key {
        struct cairn_key key;
        int64_t there; // blocks of this key at the last opening, and put since
        bool kept;     // was visible when a legal hold was set on it
};

struct checks {
        struct checks_key keys[CHECKS_KEYS_MAX];
        uint32_t keys_count;
        uint32_t space;
        uint64_t cursor;   // of the audit: the next record
        uint64_t vanished; // blocks with their records, all in all
        uint64_t unrecorded;
        uint64_t quotas; // set
        uint64_t holds;
        bool held; // a legal hold is there, or on its way
        // What each tenant may have at most: a quota that is lowered is reached by and by.
        uint64_t ram_max[CHECKS_TENANTS];
        uint64_t nvme_max[CHECKS_TENANTS];
};

// After an opening: counts what is there.
void checks_begin(struct checks *checks, const struct cairn_store *store);
// After a clean close and the next opening. NULL, or what is wrong. `exact`: nothing failed, so
// that each vanished block must have its record; else none may have two.
const char *checks_vanished(struct checks *checks, const struct cairn_store *store, bool exact);
// Gives a tenant a quota by chance, or none.
void checks_set_quota(struct checks *checks, struct cairn_store *store, struct sim_random *random,
                      const struct cairn_block_shape *shape);
const char *checks_quotas(struct checks *checks, const struct cairn_store *store);
// Sets a hold on the chain that ends with this key, or lifts the one that is there.
void checks_turn_hold(struct checks *checks, struct cairn_store *store, uint32_t key,
                      uint32_t chain);
void checks_hold_lifted(struct checks *checks);
const char *checks_holds(const struct checks *checks, const struct cairn_store *store);

#endif
