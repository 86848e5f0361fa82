// What get, put and lookup share: blocks of one space in an arena, a private daemon, a baseline
// that takes turns with it. Used by tests/bench/ alone.
#ifndef CAIRN_BENCH_IO_H
#define CAIRN_BENCH_IO_H

#include "tests/bench/bench.h"
#include "tests/bench/daemon.h"

enum {
        CAIRN_BENCH_SAMPLES_MAX = 200000,
        CAIRN_BENCH_BLOCKS_MAX = 1 << 20,
        CAIRN_BENCH_THREADS_MAX = 64
};

struct cairn_bench_redis;

// Blocks of one space, in an arena, with keys of their own.
struct cairn_bench_io {
        struct cairn_bench_daemon daemon;
        struct cairn_space_config config;
        struct cairn_arena *arena;
        uint8_t *blocks;
        uint8_t *copy; // where the baseline copies to
        struct cairn_key *keys;
        double *samples;
        struct cairn_bench_redis *redis; // where it is the baseline
        uint32_t space;
        uint64_t block_bytes;
        uint64_t count;
        uint64_t batch;
        double seconds;
        uint64_t threads;         // that copy in the baseline: as many as the daemon has scorers
        bool checksum;            // the baseline's copies are checksummed too
        bool view;                // blocks are read in place, and the baseline reads its copy
        struct cairn_view *views; // of a batch
        uint64_t sum;             // of all that was read so, ours and the baseline's
};

// What was measured: ours beside as many bytes of the baseline.
struct cairn_bench_tally {
        size_t samples;
        double ours_s;
        double baseline_s;
        double bytes;
        double cpu_s;        // of the daemon
        double client_cpu_s; // of this thread, while it waited for the daemon
        double baseline_cpu_s;
        double whole_batches; // bytes a second of fio that waits for each batch; 0: not asked
};

// Flags: --block, --blocks, --batch, --seconds, --attention. total_bytes: what the blocks hold
// where
// --blocks is absent. ram_bytes 0: ample. -1 after saying what was wrong.
int cairn_bench_io_begin(int argc, char **argv, uint64_t total_bytes, uint64_t ram_bytes,
                         uint64_t nvme_bytes, struct cairn_bench_io *io);
void cairn_bench_io_finish(struct cairn_bench_io *io);
int cairn_bench_io_fail(const struct cairn_bench_io *io, const char *what, int status);

// Other keys every round.
void cairn_bench_io_name_keys(struct cairn_bench_io *io, uint64_t round);
uint64_t cairn_bench_io_batch_count(const struct cairn_bench_io *io, uint64_t first);
int cairn_bench_io_put_batch(struct cairn_bench_io *io, uint64_t first, uint32_t ack);
int cairn_bench_io_put_all(struct cairn_bench_io *io, uint32_t ack);
// The baseline's part of a round.
int cairn_bench_io_baseline(struct cairn_bench_io *io, struct cairn_bench_tally *tally);
// One batch of leased blocks by views: read whole, found to be valid.
int cairn_bench_io_view_batch(struct cairn_bench_io *io, uint64_t first, struct cairn_lease lease);
// Reads memory as fast as one thread can; the sum of its u64s.
uint64_t cairn_bench_io_read(const void *bytes, uint64_t size);
void cairn_bench_io_report(struct cairn_bench_io *io, const struct cairn_bench_tally *tally,
                           const char *baseline, const char *flags,
                           struct cairn_bench_report *report);

// ---- baselines that are other programs ----

// Bytes a second of fio (io_uring, O_DIRECT) in the daemon's directory: reads, or writes with a
// fdatasync every `depth`. -1 after saying what was wrong, e.g. that there is no fio.
// whole_batches: the next `depth` are asked for when all of the last are there, as a caller does
// who waits for each batch.
double cairn_bench_fio(const struct cairn_bench_io *io, bool writes, uint64_t depth,
                       bool whole_batches);

// A redis-server of one's own with all blocks set, and hiredis. -1 after saying what was wrong.
int cairn_bench_redis_start(struct cairn_bench_io *io);
void cairn_bench_redis_stop(struct cairn_bench_redis *redis);
// Seconds of a pipelined GET of a batch; negative on failure.
double cairn_bench_redis_get_s(struct cairn_bench_redis *redis, uint64_t first, uint64_t count);

#endif
