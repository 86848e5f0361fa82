// Looking for the next request before sleeping: to be put to sleep and woken costs both sides tens
// of microseconds, more than many an answer takes. The loop looks only where the last wait was as
// short, and whoever needs its processor goes first.
// May be used by: daemon, tests. May use: libuv. Threads: the loop.
#ifndef CAIRN_DAEMON_SPIN_H
#define CAIRN_DAEMON_SPIN_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct cairn_spin {
        uv_idle_t idle;     // while it looks
        uint64_t window_ns; // how long, at most; 0: never
        uint64_t since_ns;  // when something happened last
};

// window_us 0, or a single processor to run on: never. The handle belongs to the loop and is closed
// with it.
int cairn_spin_init(struct cairn_spin *spin, uv_loop_t *loop, uint64_t window_us);
// Something happened that more is likely to follow.
void cairn_spin_note(struct cairn_spin *spin);

#endif
