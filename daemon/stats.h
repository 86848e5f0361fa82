// The daemon's own numbers, and the reply that shows them beside the store's.
// May be used by: daemon. May use: proto, storage. Threads: the loop's.
#ifndef CAIRN_STATS_H
#define CAIRN_STATS_H

#include <stdint.h>

#include "proto/frame.h"

// Gauges are back at their start when nobody is connected; counters only grow.
struct cairn_counters {
        uint64_t connections; // gauges
        uint64_t requests_inflight;
        uint64_t requests_bytes; // of requests and of replies not yet sent
        uint64_t leases;
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
        uint64_t protocol_errors;
        uint64_t descriptors_refused;
        uint64_t received_bytes;
        uint64_t sent_bytes;
        uint64_t requests_total[CAIRN_KIND_COUNT];
        uint64_t requests_failed[CAIRN_KIND_COUNT];
        uint64_t tokens_scanned;
        uint64_t rows_fetched;
};

#endif
