// A device in memory that fails as disks do, by a seed: short and late and reordered completions,
// EIO, ENOSPC; at a crash, writes that were not synced are lost, kept or torn, a sector at a time.
// Used by: tests. Threads: one.
#ifndef CAIRN_SIM_DEVICE_H
#define CAIRN_SIM_DEVICE_H

#include "sim_random.h"
#include "storage/device.h"

// Shares are in a million.
struct sim_faults {
        uint32_t short_share;
        uint32_t again_share;
        uint32_t eio_share;
        uint32_t write_share;  // of writes alone: EIO, ENOSPC or EFBIG
        uint32_t enospc_share; // of creations
        uint32_t flip_share;   // of reads: a bit is wrong on its way
        uint32_t latency_max;  // reaps that a request may take
};

struct sim_device;
// fail_at: the request (counted from 1) that fails with EIO; 0: none.
struct sim_device *sim_device_create(uint64_t seed, uint64_t capacity_bytes);
void sim_device_destroy(struct sim_device *sim);
struct cairn_device *sim_device_device(struct sim_device *sim);
void sim_device_faults(struct sim_device *sim, const struct sim_faults *faults);
void sim_device_capacity(struct sim_device *sim, uint64_t capacity_bytes);
void sim_device_stall(struct sim_device *sim, bool stalled); // nothing ends meanwhile
void sim_device_fail_at(struct sim_device *sim, uint64_t request);
uint64_t sim_device_requests(const struct sim_device *sim);
// Power is cut: what was under way is gone.
void sim_device_crash(struct sim_device *sim);

#endif
