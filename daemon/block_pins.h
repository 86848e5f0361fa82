// Pins that workers put on blocks: holds with an owner and a deadline. A soft pin ends with its
// connection; a hard one outlives it, and ends by an unpin, by its deadline, or with the daemon. A
// pinned block stays in a local tier and cannot be deleted. May be used by: daemon, tests. May use:
// proto. Threads: the loop's.
#ifndef CAIRN_BLOCK_PINS_H
#define CAIRN_BLOCK_PINS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/key.h"

struct cairn_block;
struct cairn_block_pin;
struct cairn_pin_tenant;

struct cairn_block_pins {
        struct cairn_block_pin **buckets; // NULL until the first pin
        struct cairn_pin_tenant *tenants;
        uint64_t count;
        uint64_t soft_count;
        uint64_t deadline_min_ms; // no pin ends before
        void (*on_release)(void *arg, struct cairn_block *block);
        void *arg;
};

// Whose pin on what. One pin an (owner, block) of a tenant.
struct cairn_block_pin_id {
        uint32_t space;
        uint32_t tenant;
        const struct cairn_key *key;
        const char *owner; // "": none named; at most CAIRN_NAME_BYTES_MAX
};

void cairn_block_pins_init(struct cairn_block_pins *pins,
                           void (*on_release)(void *arg, struct cairn_block *block), void *arg);
// Ends all pins.
void cairn_block_pins_finish(struct cairn_block_pins *pins);

// Takes over the hold on `block`, unless it fails: CAIRN_EBUSY (CAIRN_PINS_MAX,
// CAIRN_PINS_TENANT_MAX), CAIRN_ENOMEM. A pin that was there is replaced. session NULL: hard.
// deadline_ms: of the monotonic clock; UINT64_MAX: none.
int cairn_block_pins_add(struct cairn_block_pins *pins, const struct cairn_block_pin_id *id,
                         const void *session, uint64_t deadline_ms, struct cairn_block *block);
// CAIRN_ENOENT: no such pin of this tenant and owner.
int cairn_block_pins_remove(struct cairn_block_pins *pins, const struct cairn_block_pin_id *id);
// Whether someone pins it; with spare_tenant, someone other than this tenant.
bool cairn_block_pins_protect(const struct cairn_block_pins *pins, uint32_t space,
                              const struct cairn_key *key, bool spare_tenant, uint32_t tenant);
// Ends the soft pins of a session.
void cairn_block_pins_end_session(struct cairn_block_pins *pins, const void *session);
// Ends all pins of the tenant on the block, whoever owns them.
void cairn_block_pins_end_tenant(struct cairn_block_pins *pins, uint32_t space,
                                 const struct cairn_key *key, uint32_t tenant);
// Ends what is past its deadline.
void cairn_block_pins_expire(struct cairn_block_pins *pins, uint64_t now_ms);

#endif
