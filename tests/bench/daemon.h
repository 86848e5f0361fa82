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
        uint64_t ram_bytes;
        uint64_t nvme_bytes;
        bool views; // it serves them
        char program[4096];
        char folder[64];
        char socket[128];
};

// From --socket, or starts one with ram_bytes and nvme_bytes, with views if --view is set. -1 after
// saying what was wrong.
int cairn_bench_daemon_start(int argc, char **argv, uint64_t ram_bytes, uint64_t nvme_bytes,
                             struct cairn_bench_daemon *ret_daemon);
// Ends the private one as SIGTERM does and starts it anew on the same directory; the client is
// another one then. Seconds from its start until it answered, or negative after saying what was
// wrong.
double cairn_bench_daemon_restart(struct cairn_bench_daemon *daemon);
void cairn_bench_daemon_stop(struct cairn_bench_daemon *daemon);
// CPU seconds that the private daemon has used; 0 if it is not ours.
double cairn_bench_daemon_cpu_s(const struct cairn_bench_daemon *daemon);
// One of its metrics, summed over labels that hold `label` (""; all); 0 if unknown.
double cairn_bench_daemon_stat(const struct cairn_bench_daemon *daemon, const char *name,
                               const char *label);
// A line of /proc/PID/status in bytes, e.g. "VmRSS"; 0 if it is not ours.
double cairn_bench_daemon_memory(const struct cairn_bench_daemon *daemon, const char *line);

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
