// fio as the baseline of NVMe reads and writes.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/bench/io.h"

// The number after `"bw_bytes" :` of the part that begins with `part` in fio's JSON.
static double bandwidth_of(const char *json, const char *part)
{
        const char *at = strstr(json, part);

        at = at ? strstr(at, "\"bw_bytes\"") : NULL;
        at = at ? strchr(at, ':') : NULL;
        return at ? strtod(at + 1, NULL) : -1;
}

double cairn_bench_fio(const struct cairn_bench_io *io, bool writes, uint64_t depth,
                       bool whole_batches)
{
        static char json[1 << 20];
        char command[1024], batch[128] = "", sync[64] = "", file[128];
        uint64_t bytes = io->count * io->block_bytes;
        double bandwidth, seconds = io->seconds > 2 ? 2 : io->seconds < 0.5 ? 0.5 : io->seconds;
        size_t size;
        FILE *pipe;
        int status;

        if (access("/usr/bin/fio", X_OK) != 0 && system("command -v fio >/dev/null 2>&1") != 0) {
                fprintf(stderr, "cairn-bench: --vs fio: there is no fio; apt install fio\n");
                return -1;
        }
        if (io->daemon.pid <= 0) {
                fprintf(stderr, "cairn-bench: --vs fio: not with --socket\n");
                return -1;
        }
        if (writes)
                (void)snprintf(sync, sizeof(sync), "--fdatasync=%llu", (unsigned long long)depth);
        if (whole_batches)
                (void)snprintf(batch, sizeof(batch),
                               "--iodepth_batch_submit=%llu --iodepth_batch_complete_min=%llu",
                               (unsigned long long)depth, (unsigned long long)depth);
        // Goes with the daemon's folder; the second time it is there already.
        (void)snprintf(file, sizeof(file), "%s/fio.bytes", io->daemon.folder);
        (void)snprintf(
            command, sizeof(command),
            "fio --name=cairn --filename=%s --size=%llu --bs=%llu --rw=%s %s %s --direct=1 "
            "--ioengine=io_uring --iodepth=%llu --time_based --runtime=%.0fms "
            "--output-format=json",
            file, (unsigned long long)bytes, (unsigned long long)io->block_bytes,
            writes ? "write" : "read", sync, batch, (unsigned long long)depth, 1000 * seconds);
        pipe = popen(command, "r");
        size = pipe ? fread(json, 1, sizeof(json) - 1, pipe) : 0;
        json[size] = '\0';
        status = pipe ? pclose(pipe) : -1;
        bandwidth = bandwidth_of(json, writes ? "\"write\" : {" : "\"read\" : {");
        if (status != 0 || bandwidth <= 0) {
                fprintf(stderr, "cairn-bench: fio failed: %s\n%.500s\n", command, json);
                return -1;
        }
        return bandwidth;
}
