// Misses by reason, and the attention mass that selections hold.
#include <math.h>
#include <stdio.h>

#include "daemon/server.h"
#include "daemon/stats_walk.h"
#include "proto/status.h"

enum {
        LABEL_BYTES = 64
};

// ---- misses ----

static const char *miss_name(size_t miss)
{
        static const char *const names[CAIRN_MISS_COUNT] = {"absent",   "prefix",  "evicted",
                                                            "quota",    "expired", "deleted",
                                                            "corrupt",  "device",  "memory",
                                                            "deadline", "other"};

        return names[miss];
}

static enum cairn_miss miss_of_gone(enum cairn_audit_reason reason)
{
        switch (reason) {
        case CAIRN_AUDIT_CAPACITY:
        case CAIRN_AUDIT_ADMISSION:
        case CAIRN_AUDIT_RETENTION: return CAIRN_MISS_EVICTED;
        case CAIRN_AUDIT_OVER_QUOTA: return CAIRN_MISS_QUOTA;
        case CAIRN_AUDIT_EXPIRED: return CAIRN_MISS_EXPIRED;
        case CAIRN_AUDIT_REQUEST: return CAIRN_MISS_DELETED;
        case CAIRN_AUDIT_CORRUPT: return CAIRN_MISS_CORRUPT;
        case CAIRN_AUDIT_DEVICE: return CAIRN_MISS_DEVICE;
        default: return CAIRN_MISS_ABSENT;
        }
}

void cairn_stats_lookup_missed(struct cairn_server *server, uint32_t space,
                               const struct cairn_key *keys, size_t count)
{
        uint64_t *misses = server->counters.lookup_misses;

        if (count == 0)
                return;
        misses[miss_of_gone(cairn_store_gone(server->store, space, keys))]++;
        misses[CAIRN_MISS_PREFIX] += count - 1;
}

static enum cairn_miss miss_of_status(const struct cairn_server *server, uint32_t space,
                                      const struct cairn_key *key, int32_t status)
{
        switch (status) {
        case CAIRN_ENOENT: return miss_of_gone(cairn_store_gone(server->store, space, key));
        case CAIRN_ECORRUPT: return CAIRN_MISS_CORRUPT;
        case CAIRN_EIO: return CAIRN_MISS_DEVICE;
        case CAIRN_ENOMEM: return CAIRN_MISS_MEMORY;
        case CAIRN_EDEADLINE: return CAIRN_MISS_DEADLINE;
        default: return CAIRN_MISS_OTHER;
        }
}

void cairn_stats_get_missed(struct cairn_server *server, uint32_t space,
                            const struct cairn_key *keys, const int32_t *statuses, size_t count)
{
        for (size_t i = 0; i < count; i++)
                if (statuses[i] != CAIRN_OK)
                        server->counters
                            .get_misses[miss_of_status(server, space, &keys[i], statuses[i])]++;
}

static void give_misses(const struct cairn_stats_walk *walk, const char *request,
                        const uint64_t misses[CAIRN_MISS_COUNT])
{
        char labels[CAIRN_STATS_LABELS_BYTES];
        size_t own = cairn_stats_label(labels, 0, "request", request);

        for (size_t miss = 0; miss < CAIRN_MISS_COUNT; miss++) {
                (void)cairn_stats_label(labels, own, "reason", miss_name(miss));
                cairn_stats_give(walk, "cairn_misses_total", "counter",
                                 "Blocks asked for and not given, by reason; prefix: looked up "
                                 "behind one that was missing; absent: never put, or long gone.",
                                 labels, (double)misses[miss]);
        }
}

void cairn_stats_give_misses(const struct cairn_stats_walk *walk, const struct cairn_counters *c)
{
        give_misses(walk, "lookup", c->lookup_misses);
        give_misses(walk, "get", c->get_misses);
}

// ---- mass ----

static const double bounds[CAIRN_MASS_BUCKETS - 1] = {0.5,  0.8,   0.9,   0.95, 0.98,
                                                      0.99, 0.995, 0.999, 1};

double cairn_mass_bound(size_t bucket)
{
        return bucket < CAIRN_MASS_BUCKETS - 1 ? bounds[bucket] : (double)INFINITY;
}

void cairn_mass_add(struct cairn_mass *mass, float lse_chosen, float lse_all)
{
        double share = exp((double)lse_chosen - (double)lse_all);
        size_t bucket = 0;

        if (!(share >= 0)) // nothing to attend to: no share of it
                return;
        if (share > 1) // both are estimates
                share = 1;
        while (share > bounds[bucket])
                bucket++;
        atomic_fetch_add_explicit(&mass->buckets[bucket], 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&mass->sum_ppb, (uint64_t)(share * 1e9), memory_order_relaxed);
}

void cairn_stats_give_mass(const struct cairn_stats_walk *walk, const struct cairn_mass *mass)
{
        char labels[LABEL_BYTES];
        struct cairn_sample sample = {
            .name = "cairn_retrieve_mass_held",
            .type = "histogram",
            .help = "Share of attention mass that selections held, once a step and query head; "
                    "estimated from landmarks.",
            .suffix = "_bucket",
            .labels = labels};
        uint64_t below = 0;

        for (size_t i = 0; i < CAIRN_MASS_BUCKETS; i++) {
                below += atomic_load_explicit(&mass->buckets[i], memory_order_relaxed);
                (void)snprintf(labels, sizeof(labels),
                               isinf(cairn_mass_bound(i)) ? "le=\"+Inf\"" : "le=\"%g\"",
                               cairn_mass_bound(i));
                sample.value = (double)below;
                walk->visit(walk->arg, &sample);
        }
        sample.labels = "";
        sample.suffix = "_sum";
        sample.value = (double)atomic_load_explicit(&mass->sum_ppb, memory_order_relaxed) / 1e9;
        walk->visit(walk->arg, &sample);
        sample.suffix = "_count";
        sample.value = (double)below;
        walk->visit(walk->arg, &sample);
}
