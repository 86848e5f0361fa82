// A cairnd for a benchmark: a running one, or a private one that ends with the benchmark. Used by
// tests/bench/ alone.
#ifndef CAIRN_BENCH_DAEMON_H
#define CAIRN_BENCH_DAEMON_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "cairn/cairn.h"

struct cairn_bench_daemon {
        struct cairn_client *client;
        pid_t pid; // 0: not ours
        char folder[64];
        char socket[128];
};

// From --socket, or starts one with ram_bytes and nvme_bytes. -1 after saying what was wrong.
int cairn_bench_daemon_start(int argc, char **argv, uint64_t ram_bytes, uint64_t nvme_bytes,
                             struct cairn_bench_daemon *ret_daemon);
void cairn_bench_daemon_stop(struct cairn_bench_daemon *daemon);
// CPU seconds that the private daemon has used; 0 if it is not ours.
double cairn_bench_daemon_cpu_s(const struct cairn_bench_daemon *daemon);

// A process that answers each request_bytes with reply_bytes over a bare AF_UNIX socket.
struct cairn_bench_echo {
        pid_t pid;
        int fd;
        size_t request_bytes;
        size_t reply_bytes;
        uint8_t *bytes;
};
int cairn_bench_echo_start(size_t request_bytes, size_t reply_bytes,
                           struct cairn_bench_echo *ret_echo);
void cairn_bench_echo_stop(struct cairn_bench_echo *echo);
// Seconds of one round trip.
double cairn_bench_echo_s(struct cairn_bench_echo *echo);

#endif
