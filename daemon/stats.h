// The daemon's own numbers, and one walk over them and the store's that Stats and the metrics over
// HTTP share. May be used by: daemon. May use: proto, storage. Threads: the loop's.
#ifndef CAIRN_STATS_H
#define CAIRN_STATS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/frame.h"
#include "proto/status.h"

struct cairn_server;

enum {
        CAIRN_LATENCY_BUCKETS = 20, // of which the last has no bound
        CAIRN_TIERS_COUNT = 4       // by enum cairn_tier; none: a miss
};

// Requests of one kind, from the receipt of the whole frame to the answer.
struct cairn_latency {
        uint64_t buckets[CAIRN_LATENCY_BUCKETS]; // not cumulative
        uint64_t sum_ns;
        uint64_t count;
};

// Why a block that was asked for was not given.
enum cairn_miss {
        CAIRN_MISS_ABSENT, // never put, or forgotten why it left
        CAIRN_MISS_PREFIX, // looked up behind one that was missing
        CAIRN_MISS_EVICTED,
        CAIRN_MISS_QUOTA,
        CAIRN_MISS_EXPIRED,
        CAIRN_MISS_DELETED,
        CAIRN_MISS_CORRUPT,
        CAIRN_MISS_DEVICE,
        CAIRN_MISS_MEMORY,
        CAIRN_MISS_DEADLINE,
        CAIRN_MISS_OTHER,
        CAIRN_MISS_COUNT
};

enum {
        CAIRN_MASS_BUCKETS = 10 // of which the last has no bound below 1
};

// The share of attention mass that selections hold, an observation a query head and step. Filled by
// scorers.
struct cairn_mass {
        _Atomic uint64_t buckets[CAIRN_MASS_BUCKETS]; // not cumulative
        _Atomic uint64_t sum_ppb;                     // in billionths
};

// Gauges are back at their start when nobody is connected; counters only grow.
struct cairn_counters {
        uint64_t connections; // gauges
        uint64_t requests_inflight;
        uint64_t requests_bytes; // of requests and of replies not yet sent
        uint64_t leases;
        uint64_t views;      // blocks that leases pin in RAM
        uint64_t view_bytes; // of these, and of those on their way
        uint64_t block_pins;
        uint64_t contexts;            // open
        uint64_t contexts_unfinished; // open, or closed and still in use by a request
        uint64_t context_bytes;
        uint64_t arenas;
        uint64_t arena_bytes;
        uint64_t connections_total; // counters
        uint64_t connections_refused;
        uint64_t connections_timed_out;
        uint64_t leases_total;
        uint64_t leases_expired;
        uint64_t ram_checks; // copies in RAM summed again
        uint64_t protocol_errors;
        uint64_t descriptors_refused;
        uint64_t received_bytes;
        uint64_t sent_bytes;
        uint64_t requests_total[CAIRN_KIND_COUNT];
        uint64_t requests_failed[CAIRN_KIND_COUNT];
        uint64_t tokens_scanned;
        uint64_t rows_fetched;
        uint64_t lookup_blocks[CAIRN_TIERS_COUNT]; // asked for, by the tier that had them
        uint64_t lookup_tokens;                    // in the blocks found
        uint64_t saved_bytes;                      // K and V of these
        uint64_t lookup_misses[CAIRN_MISS_COUNT];
        uint64_t get_misses[CAIRN_MISS_COUNT];
        struct cairn_mass mass;
        uint64_t get_blocks[CAIRN_STATUS_COUNT]; // by the status answered, negated
        uint64_t put_blocks[CAIRN_STATUS_COUNT];
        uint64_t get_bytes; // of blocks answered with CAIRN_OK
        uint64_t put_bytes;
        struct cairn_latency latency[CAIRN_KIND_COUNT];
};

// One sample. `suffix` is "" or, for histograms, "_bucket", "_sum" or "_count"; `labels` is
// `a="b",c="d"` or "". All but `value` lives for the call.
struct cairn_sample {
        const char *name;
        const char *type; // "gauge", "counter" or "histogram"
        const char *help;
        const char *suffix;
        const char *labels;
        double value;
};
typedef void (*cairn_stats_visitor)(void *arg, const struct cairn_sample *sample);

// Samples of one name come one after the other. `spaces`: with those of each space.
void cairn_stats_visit(const struct cairn_server *server, bool spaces, cairn_stats_visitor visit,
                       void *arg);

void cairn_stats_add_latency(struct cairn_latency *latency, uint64_t duration_ns);
// Counts statuses[count] of a Get or Put; `bytes` of each that is CAIRN_OK go to *bytes_total.
void cairn_stats_add_blocks(uint64_t blocks[CAIRN_STATUS_COUNT], uint64_t *bytes_total,
                            const int32_t *statuses, size_t count, uint64_t bytes);
// Upper bound of a bucket in seconds; INFINITY for the last.
double cairn_latency_bound(size_t bucket);

// stats_miss.c. Keys of a lookup from the first that was not found on; of a Get, those without
// CAIRN_OK.
struct cairn_key;
void cairn_stats_lookup_missed(struct cairn_server *server, uint32_t space,
                               const struct cairn_key *keys, size_t count);
void cairn_stats_get_missed(struct cairn_server *server, uint32_t space,
                            const struct cairn_key *keys, const int32_t *statuses, size_t count);
// One observation, by its log-sum-exps. Any thread.
void cairn_mass_add(struct cairn_mass *mass, float lse_chosen, float lse_all);
double cairn_mass_bound(size_t bucket); // of a bucket; INFINITY for the last

#endif
