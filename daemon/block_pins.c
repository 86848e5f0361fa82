// Pins on blocks: a hash table with chains, of a fixed number of buckets.
#include "daemon/block_pins.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "proto/limits.h"
#include "proto/status.h"

enum {
        BUCKETS = 16384
};

struct cairn_pin_tenant {
        struct cairn_pin_tenant *next;
        uint32_t tenant;
        uint64_t count; // never 0
};

struct cairn_block_pin {
        struct cairn_block_pin *next;
        struct cairn_block *block;
        const void *session; // NULL: hard
        uint64_t deadline_ms;
        uint32_t space;
        uint32_t tenant;
        struct cairn_key key;
        char owner[];
};

void cairn_block_pins_init(struct cairn_block_pins *pins,
                           void (*on_release)(void *arg, struct cairn_block *block), void *arg)
{
        *pins = (struct cairn_block_pins){
            .deadline_min_ms = UINT64_MAX, .on_release = on_release, .arg = arg};
}

static struct cairn_block_pin **bucket_of(const struct cairn_block_pins *pins,
                                          const struct cairn_key *key)
{
        uint32_t hash; // keys are hashes

        memcpy(&hash, key->bytes, sizeof(hash));
        return &pins->buckets[hash % BUCKETS];
}

static bool is_of(const struct cairn_block_pin *pin, uint32_t space, const struct cairn_key *key)
{
        return pin->space == space && memcmp(pin->key.bytes, key->bytes, sizeof(key->bytes)) == 0;
}

// The link that points at the pin; at NULL when there is none.
static struct cairn_block_pin **find(const struct cairn_block_pins *pins,
                                     const struct cairn_block_pin_id *id)
{
        struct cairn_block_pin **link = bucket_of(pins, id->key);

        while (*link && !(is_of(*link, id->space, id->key) && (*link)->tenant == id->tenant &&
                          strcmp((*link)->owner, id->owner) == 0))
                link = &(*link)->next;
        return link;
}

// One pin more of the tenant. False: above its limit, or no memory.
static int count_in(struct cairn_block_pins *pins, uint32_t tenant)
{
        struct cairn_pin_tenant *t = pins->tenants;

        while (t && t->tenant != tenant)
                t = t->next;
        if (pins->count >= CAIRN_PINS_MAX || (t && t->count >= CAIRN_PINS_TENANT_MAX))
                return CAIRN_EBUSY;
        if (!t) {
                t = calloc(1, sizeof(*t));
                if (!t)
                        return CAIRN_ENOMEM;
                t->tenant = tenant;
                t->next = pins->tenants;
                pins->tenants = t;
        }
        t->count++;
        pins->count++;
        return CAIRN_OK;
}

static void count_out(struct cairn_block_pins *pins, uint32_t tenant)
{
        struct cairn_pin_tenant **link = &pins->tenants;

        while ((*link)->tenant != tenant)
                link = &(*link)->next;
        pins->count--;
        if (--(*link)->count == 0) {
                struct cairn_pin_tenant *gone = *link;

                *link = gone->next;
                free(gone);
        }
}

static void end(struct cairn_block_pins *pins, struct cairn_block_pin **link)
{
        struct cairn_block_pin *pin = *link;

        *link = pin->next;
        count_out(pins, pin->tenant);
        pins->soft_count -= pin->session != NULL;
        pins->on_release(pins->arg, pin->block);
        free(pin);
}

int cairn_block_pins_add(struct cairn_block_pins *pins, const struct cairn_block_pin_id *id,
                         const void *session, uint64_t deadline_ms, struct cairn_block *block)
{
        size_t owner_bytes = strlen(id->owner) + 1;
        struct cairn_block_pin **link;
        struct cairn_block_pin *pin;
        int status;

        if (!pins->buckets)
                pins->buckets = calloc(BUCKETS, sizeof(struct cairn_block_pin *));
        if (!pins->buckets)
                return CAIRN_ENOMEM;
        link = find(pins, id);
        if (*link) {
                pin = *link;
                pins->on_release(pins->arg, pin->block);
                pins->soft_count -= pin->session != NULL;
        } else {
                pin = calloc(1, sizeof(*pin) + owner_bytes);
                if (!pin)
                        return CAIRN_ENOMEM;
                status = count_in(pins, id->tenant);
                if (status != CAIRN_OK) {
                        free(pin);
                        return status;
                }
                pin->space = id->space;
                pin->tenant = id->tenant;
                pin->key = *id->key;
                memcpy(pin->owner, id->owner, owner_bytes);
                *link = pin;
        }
        pin->block = block;
        pin->session = session;
        pin->deadline_ms = deadline_ms;
        pins->soft_count += session != NULL;
        if (deadline_ms < pins->deadline_min_ms)
                pins->deadline_min_ms = deadline_ms;
        return CAIRN_OK;
}

int cairn_block_pins_remove(struct cairn_block_pins *pins, const struct cairn_block_pin_id *id)
{
        struct cairn_block_pin **link = pins->buckets ? find(pins, id) : NULL;

        if (!link || !*link)
                return CAIRN_ENOENT;
        end(pins, link);
        return CAIRN_OK;
}

bool cairn_block_pins_protect(const struct cairn_block_pins *pins, uint32_t space,
                              const struct cairn_key *key, bool spare_tenant, uint32_t tenant)
{
        const struct cairn_block_pin *pin = pins->buckets ? *bucket_of(pins, key) : NULL;

        while (pin && !(is_of(pin, space, key) && !(spare_tenant && pin->tenant == tenant)))
                pin = pin->next;
        return pin != NULL;
}

void cairn_block_pins_end_tenant(struct cairn_block_pins *pins, uint32_t space,
                                 const struct cairn_key *key, uint32_t tenant)
{
        struct cairn_block_pin **link = pins->buckets ? bucket_of(pins, key) : NULL;

        while (link && *link) {
                if (is_of(*link, space, key) && (*link)->tenant == tenant)
                        end(pins, link);
                else
                        link = &(*link)->next;
        }
}

// Ends the pins of a session (NULL: of none) and those that end by now_ms; finds the next deadline.
static void sweep(struct cairn_block_pins *pins, const void *session, uint64_t now_ms)
{
        uint64_t min_ms = UINT64_MAX;

        for (uint32_t i = 0; i < BUCKETS && pins->count > 0; i++) {
                struct cairn_block_pin **link = &pins->buckets[i];

                while (*link) {
                        if ((*link)->deadline_ms <= now_ms ||
                            (session && (*link)->session == session)) {
                                end(pins, link);
                                continue;
                        }
                        if ((*link)->deadline_ms < min_ms)
                                min_ms = (*link)->deadline_ms;
                        link = &(*link)->next;
                }
        }
        pins->deadline_min_ms = min_ms;
}

void cairn_block_pins_end_session(struct cairn_block_pins *pins, const void *session)
{
        assert(session);
        if (pins->soft_count > 0)
                sweep(pins, session, 0);
}

void cairn_block_pins_expire(struct cairn_block_pins *pins, uint64_t now_ms)
{
        if (now_ms >= pins->deadline_min_ms)
                sweep(pins, NULL, now_ms);
}

void cairn_block_pins_finish(struct cairn_block_pins *pins)
{
        sweep(pins, NULL, UINT64_MAX);
        assert(pins->count == 0 && !pins->tenants);
        free(pins->buckets);
        pins->buckets = NULL;
}
