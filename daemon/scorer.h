// Scorers: the threads that touch bulk bytes. Work goes in from the loop thread and its completion
// comes back to it. First in, first out; whoever has much to do hands it in by slices, so that
// others get their turn. May be used by: daemon, storage (through struct cairn_executor). May use:
// libuv.
#ifndef CAIRN_SCORER_H
#define CAIRN_SCORER_H

#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "daemon/cpu_list.h"
#include "storage/executor.h"

struct cairn_scorer;

// Starts `threads` threads, each with up to scratch_bytes of memory of its own, and on a processor
// of its own from `cpus`, in turn (NULL, or none in it: anywhere). CAIRN_ENOMEM or CAIRN_EBUSY (no
// thread could be had); CAIRN_EINVAL: a processor that this process may not run on.
int cairn_scorer_create(uv_loop_t *loop, uint32_t threads, uint64_t scratch_bytes,
                        const struct cairn_cpu_list *cpus, struct cairn_scorer **ret_scorer);
// No work may be under way. `on_closed` runs on the loop when the memory is free.
void cairn_scorer_destroy(struct cairn_scorer *scorer, void (*on_closed)(void *arg), void *arg);

struct cairn_executor *cairn_scorer_executor(struct cairn_scorer *scorer);
void cairn_scorer_submit(struct cairn_scorer *scorer, struct cairn_work *work); // loop thread
uint32_t cairn_scorer_threads(const struct cairn_scorer *scorer);
// Work handed in and not yet completed. Loop thread.
uint64_t cairn_scorer_pending(const struct cairn_scorer *scorer);

// Memory of the calling scorer thread, aligned to 64 bytes, kept and reused: valid until the `run`
// that asked returns, or until it asks again. NULL: no memory, or more than a thread may have. Only
// inside `run`.
void *cairn_scorer_scratch(size_t bytes);

#endif
