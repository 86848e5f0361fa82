// Ends the process if a step of stopping, which may have to wait for a disk that stands still,
// takes too long: a thread of its own, for the loop is the one that waits. May be used by: daemon,
// tests. May use: log.
#ifndef CAIRN_DAEMON_STOP_GUARD_H
#define CAIRN_DAEMON_STOP_GUARD_H

#include <stdint.h>

struct cairn_stop_guard;

// Exits with 1 after limit_ms unless stopped before. NULL: no thread to be had; then nothing does.
struct cairn_stop_guard *cairn_stop_guard_create(uint64_t limit_ms);
// Joins the thread. NULL is fine.
void cairn_stop_guard_destroy(struct cairn_stop_guard *guard);

#endif
