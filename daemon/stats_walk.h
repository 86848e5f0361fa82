// The walk over all numbers, shared by the files that have some. Private to stats*.c; Stats has its
// labels.
#ifndef CAIRN_STATS_WALK_H
#define CAIRN_STATS_WALK_H

#include "daemon/stats.h"

struct cairn_stats_walk {
        cairn_stats_visitor visit;
        void *arg;
};

enum {
        CAIRN_STATS_LABELS_BYTES = 96 // of the labels of kinds, statuses and tiers
};

// Writes `name="value"` behind the first `used` bytes of labels[CAIRN_STATS_LABELS_BYTES], cut to
// what fits; returns the bytes used. Printing by a format takes most of the time of a walk.
size_t cairn_stats_label(char *labels, size_t used, const char *name, const char *value);

void cairn_stats_give(const struct cairn_stats_walk *walk, const char *name, const char *type,
                      const char *help, const char *labels, double value);

// stats_miss.c
void cairn_stats_give_misses(const struct cairn_stats_walk *walk, const struct cairn_counters *c);
void cairn_stats_give_mass(const struct cairn_stats_walk *walk, const struct cairn_mass *mass);
// stats_owner.c: by space and by tenant
void cairn_stats_give_spaces(const struct cairn_stats_walk *walk,
                             const struct cairn_server *server);
void cairn_stats_give_tenants(const struct cairn_stats_walk *walk,
                              const struct cairn_server *server);

#endif
