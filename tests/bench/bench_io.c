// get and put through the socket and the arena, as a worker sees them.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/io.h"

enum {
        FLIGHT_MAX = 16,
        FIO_TURNS = 4
};

static bool is(const char *text, const char *word)
{
        return text && strcmp(text, word) == 0;
}

// ---- get ----

// One of several requests under way.
struct request {
        struct cairn_call call;
        double begin_s;
        bool done;
        int status;
};

static void on_done(struct cairn_call *call, int status)
{
        struct request *request = call->arg;

        request->status = status;
        request->done = true;
}

static int get_batch(struct cairn_bench_io *io, uint64_t first, struct request *request)
{
        struct cairn_get_args args = {
            .space = io->space,
            .keys = io->keys + first,
            .count = cairn_bench_io_batch_count(io, first),
            .blocks = io->blocks + first * io->block_bytes,
        };

        if (!request)
                return cairn_get(io->daemon.client, NULL, &args, NULL);
        *request = (struct request){.call = {.on_done = on_done, .arg = request},
                                    .begin_s = cairn_bench_now_s()};
        return cairn_get(io->daemon.client, &request->call, &args, NULL);
}

// All blocks once, in order, with `flight` requests under way.
static int get_round(struct cairn_bench_io *io, uint64_t flight, struct cairn_bench_tally *tally)
{
        struct request requests[FLIGHT_MAX];
        uint64_t batches = (io->count + io->batch - 1) / io->batch;
        uint64_t begun = 0, ended = 0;
        double begin_s = cairn_bench_now_s();

        while (ended < batches) {
                struct request *oldest = &requests[ended % flight];
                int status = CAIRN_OK;

                while (status == CAIRN_OK && begun < batches && begun < ended + flight) {
                        status = get_batch(io, begun * io->batch, &requests[begun % flight]);
                        begun++;
                }
                while (status == CAIRN_OK && !oldest->done)
                        (void)cairn_client_poll(io->daemon.client, -1); // its calls say how it went
                if (status == CAIRN_OK)
                        status = oldest->status;
                if (status != CAIRN_OK)
                        return status;
                if (tally->samples < CAIRN_BENCH_SAMPLES_MAX)
                        io->samples[tally->samples++] = cairn_bench_now_s() - oldest->begin_s;
                ended++;
        }
        tally->ours_s += cairn_bench_now_s() - begin_s;
        tally->bytes += (double)(io->count * io->block_bytes);
        return CAIRN_OK;
}

// The same by views: the chain is leased, read batch by batch, and released.
static int view_round(struct cairn_bench_io *io, struct cairn_bench_tally *tally)
{
        double begin_s = cairn_bench_now_s();
        struct cairn_lease lease;
        size_t found = 0;
        int status = cairn_lookup(io->daemon.client, NULL, io->space, io->keys, io->count,
                                  60 * 1000, &found, &lease);

        if (status == CAIRN_OK && found < io->count)
                status = CAIRN_ENOENT;
        for (uint64_t first = 0; first < io->count && status == CAIRN_OK; first += io->batch) {
                double batch_s = cairn_bench_now_s();

                status = cairn_bench_io_view_batch(io, first, lease);
                if (tally->samples < CAIRN_BENCH_SAMPLES_MAX)
                        io->samples[tally->samples++] = cairn_bench_now_s() - batch_s;
        }
        if (status == CAIRN_OK)
                status = cairn_release(io->daemon.client, NULL, &lease);
        tally->ours_s += cairn_bench_now_s() - begin_s;
        tally->bytes += (double)(io->count * io->block_bytes);
        return status;
}

static int measure_get(struct cairn_bench_io *io, uint64_t flight, bool turns,
                       struct cairn_bench_tally *tally)
{
        double end_s = cairn_bench_now_s() + io->seconds;

        while (cairn_bench_now_s() < end_s) {
                double own_s = cairn_bench_cpu_s();
                double cpu_s = cairn_bench_daemon_cpu_s(&io->daemon);
                int status = io->view ? view_round(io, tally) : get_round(io, flight, tally);

                if (status != CAIRN_OK)
                        return status;
                tally->client_cpu_s += cairn_bench_cpu_s() - own_s;
                tally->cpu_s += cairn_bench_daemon_cpu_s(&io->daemon) - cpu_s;
                if (turns && cairn_bench_io_baseline(io, tally) != 0)
                        return CAIRN_EIO;
        }
        return CAIRN_OK;
}

// Every byte is as it was put.
static int check_get(struct cairn_bench_io *io)
{
        uint64_t bytes = io->count * io->block_bytes;
        uint64_t sum = cairn_bench_io_read(io->blocks, bytes);
        int status = CAIRN_OK;

        memcpy(io->copy, io->blocks, bytes);
        memset(io->blocks, 0, bytes);
        for (uint64_t first = 0; first < io->count && status == CAIRN_OK; first += io->batch)
                status = get_batch(io, first, NULL);
        if (status == CAIRN_OK && memcmp(io->copy, io->blocks, bytes) != 0) {
                fprintf(stderr, "cairn-bench: get returned other bytes than were put\n");
                return CAIRN_ECORRUPT;
        }
        if (status == CAIRN_OK && io->view)
                status = view_round(io, &(struct cairn_bench_tally){0});
        if (status == CAIRN_OK && io->view && io->sum != sum) {
                fprintf(stderr, "cairn-bench: views show other bytes than were put\n");
                return CAIRN_ECORRUPT;
        }
        return status;
}

// Takes turns with our rounds: the speed of disks that are shared changes within seconds.
static int get_beside_fio(struct cairn_bench_io *io, uint64_t flight,
                          struct cairn_bench_tally *tally)
{
        double seconds = io->seconds, fio = 0, whole = 0;
        int status = CAIRN_OK;

        io->seconds = seconds / FIO_TURNS;
        if (cairn_bench_fio(io, false, flight * io->batch, false) < 0) // makes its file
                status = CAIRN_EIO;
        for (int i = 0; i < FIO_TURNS && status == CAIRN_OK; i++) {
                double one = cairn_bench_fio(io, false, flight * io->batch, false);

                fio += one;
                status = one < 0 ? CAIRN_EIO : measure_get(io, flight, false, tally);
                if (status == CAIRN_OK)
                        whole += cairn_bench_fio(io, false, io->batch, true);
        }
        io->seconds = seconds;
        tally->baseline_s = tally->bytes / (fio / FIO_TURNS);
        tally->whole_batches = whole / FIO_TURNS;
        return status;
}

static int run_get(struct cairn_bench_io *io, uint64_t flight, bool nvme, const char *versus,
                   struct cairn_bench_report *report)
{
        struct cairn_bench_tally tally = {0};
        const char *baseline =
            io->view ? "reads of the same bytes in a local buffer" : "memcpy of the same batches";
        char flags[96];
        double read_before;
        int status = cairn_bench_io_put_all(io, nvme ? CAIRN_PUT_ACK_DISK : CAIRN_PUT_ACK_MEMORY);

        if (status == CAIRN_OK)
                status = check_get(io); // and warm
        if (status == CAIRN_OK && is(versus, "redis") && cairn_bench_redis_start(io) != 0)
                return -1;
        if (status != CAIRN_OK)
                return cairn_bench_io_fail(io, "get", status);
        read_before = cairn_bench_daemon_stat(&io->daemon, "cairn_nvme_read_bytes_total", "");
        if (is(versus, "fio")) {
                baseline = "fio reads, io_uring O_DIRECT, same depth and size";
                status = get_beside_fio(io, flight, &tally);
        } else {
                status = measure_get(io, flight, true, &tally);
        }
        if (status != CAIRN_OK)
                return cairn_bench_io_fail(io, "get", status);
        (void)snprintf(flags, sizeof(flags), ", \"tier\": \"%s\", \"flight\": %llu%s",
                       nvme ? "nvme" : "ram", (unsigned long long)flight,
                       io->view ? ", \"view\": true" : "");
        cairn_bench_io_report(io, &tally,
                              io->redis ? "redis-server, hiredis, pipelined GETs" : baseline, flags,
                              report);
        if (nvme)
                cairn_bench_extra(
                    report, "share_from_nvme",
                    (cairn_bench_daemon_stat(&io->daemon, "cairn_nvme_read_bytes_total", "") -
                     read_before) /
                        tally.bytes);
        return 0;
}

int cairn_bench_get(int argc, char **argv, struct cairn_bench_report *ret_report)
{
        const char *tier = cairn_bench_flag_text(argc, argv, "tier", "ram");
        const char *versus = cairn_bench_flag_text(argc, argv, "vs", NULL);
        uint64_t flight = cairn_bench_flag_u64(argc, argv, "flight", 1);
        bool nvme = is(tier, "nvme");
        struct cairn_bench_io io = {0};
        int status;

        if ((!nvme && !is(tier, "ram")) || flight == 0 || flight > FLIGHT_MAX ||
            (versus && !is(versus, "fio") && !is(versus, "redis"))) {
                fprintf(stderr, "cairn-bench: get: --tier ram or nvme, --vs fio or redis, "
                                "--flight 1 to 16, please\n");
                return -1;
        }
        if (cairn_bench_flag_set(argc, argv, "view") && (nvme || versus || flight > 1)) {
                fprintf(stderr, "cairn-bench: get: --view goes with --tier ram alone\n");
                return -1;
        }
        // From NVMe: a RAM tier of an eighth of the blocks, so that hardly any is found there.
        if (cairn_bench_io_begin(argc, argv, nvme ? 1ull << 30 : 128u << 20, nvme ? 128u << 20 : 0,
                                 nvme ? 8ull << 30 : 0, &io) != 0)
                return -1;
        status = run_get(&io, flight, nvme, versus, ret_report);
        cairn_bench_io_finish(&io);
        return status;
}

// ---- put ----

static int put_round(struct cairn_bench_io *io, uint32_t ack, struct cairn_bench_tally *tally)
{
        for (uint64_t first = 0; first < io->count; first += io->batch) {
                double begin_s = cairn_bench_now_s(), one_s;
                int status = cairn_bench_io_put_batch(io, first, ack);

                if (status != CAIRN_OK)
                        return status;
                one_s = cairn_bench_now_s() - begin_s;
                tally->ours_s += one_s;
                if (tally->samples < CAIRN_BENCH_SAMPLES_MAX)
                        io->samples[tally->samples++] = one_s;
        }
        tally->bytes += (double)(io->count * io->block_bytes);
        return CAIRN_OK;
}

static int measure_put(struct cairn_bench_io *io, uint32_t ack, bool turns,
                       struct cairn_bench_tally *tally)
{
        double end_s = cairn_bench_now_s() + io->seconds;

        // The same keys in each turn will do: they are deleted at a round's end.
        for (uint64_t round = 1; cairn_bench_now_s() < end_s; round++) {
                double cpu_s = cairn_bench_daemon_cpu_s(&io->daemon);
                double own_s = cairn_bench_cpu_s();
                int status;

                cairn_bench_io_name_keys(io, round);
                status = put_round(io, ack, tally);
                tally->cpu_s += cairn_bench_daemon_cpu_s(&io->daemon) - cpu_s;
                tally->client_cpu_s += cairn_bench_cpu_s() - own_s;
                if (status == CAIRN_OK && turns && cairn_bench_io_baseline(io, tally) != 0)
                        status = CAIRN_EIO;
                // Leaves first, so that the next round finds the room that this one took.
                for (uint64_t i = io->count; i > 0 && status == CAIRN_OK; i--)
                        status = cairn_delete(io->daemon.client, NULL, io->space, &io->keys[i - 1],
                                              1, false, NULL);
                if (status != CAIRN_OK)
                        return status;
        }
        return CAIRN_OK;
}

static int put_beside_fio(struct cairn_bench_io *io, uint32_t ack, struct cairn_bench_tally *tally)
{
        double seconds = io->seconds, fio = 0;
        int status = CAIRN_OK;

        io->seconds = seconds / FIO_TURNS;
        for (int i = 0; i < FIO_TURNS && status == CAIRN_OK; i++) {
                double one = cairn_bench_fio(io, true, io->batch, false);

                fio += one;
                status = one < 0 ? CAIRN_EIO : measure_put(io, ack, false, tally);
        }
        io->seconds = seconds;
        tally->baseline_s = tally->bytes / (fio / FIO_TURNS);
        return status;
}

int cairn_bench_put(int argc, char **argv, struct cairn_bench_report *ret_report)
{
        const char *word = cairn_bench_flag_text(argc, argv, "ack", "memory");
        const char *versus = cairn_bench_flag_text(argc, argv, "vs", NULL);
        bool disk = is(word, "disk"), fio = is(versus, "fio");
        uint32_t ack = disk ? CAIRN_PUT_ACK_DISK : CAIRN_PUT_ACK_MEMORY;
        struct cairn_bench_io io = {.checksum = true};
        struct cairn_bench_tally tally = {0};
        char flags[96];
        int status;

        if ((!disk && !is(word, "memory")) || (versus && !fio)) {
                fprintf(stderr, "cairn-bench: put: --ack memory or disk, --vs fio, please\n");
                return -1;
        }
        if (cairn_bench_io_begin(argc, argv, 128u << 20, 0, disk ? 8ull << 30 : 0, &io) != 0)
                return -1;
        status = cairn_bench_io_put_all(&io, ack); // warm
        if (status == CAIRN_OK)
                status =
                    fio ? put_beside_fio(&io, ack, &tally) : measure_put(&io, ack, true, &tally);
        (void)snprintf(flags, sizeof(flags), ", \"ack\": \"%s\", \"space\": \"%s\"", word,
                       cairn_bench_flag_set(argc, argv, "attention") ? "attention" : "opaque");
        if (status == CAIRN_OK)
                cairn_bench_io_report(&io, &tally,
                                      fio ? "fio writes, O_DIRECT, a fdatasync a batch"
                                          : "memcpy + XXH3 of the same batches",
                                      flags, ret_report);
        else
                (void)cairn_bench_io_fail(&io, "put", status);
        cairn_bench_io_finish(&io);
        return status == CAIRN_OK ? 0 : -1;
}
