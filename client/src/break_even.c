// Whether loading beats recomputing: by what the daemon has measured of its disk, and a copy here.
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/src/client.h"

enum {
        COPY_BYTES = 16 << 20,
        COPIES = 3,
        READ_BYTES_MIN = 16 << 20 // below it, what the daemon has read says too little
};

struct reading {
        double bytes;
        double seconds;
};

static void on_metric(void *arg, const char *name, const char *labels, double value)
{
        struct reading *reading = arg;

        (void)labels; // these have none
        if (strcmp(name, "cairn_nvme_read_bytes_total") == 0)
                reading->bytes = value;
        else if (strcmp(name, "cairn_nvme_read_busy_seconds_total") == 0)
                reading->seconds = value;
}

static double now_s(void)
{
        struct timespec now;

        (void)clock_gettime(CLOCK_MONOTONIC, &now); // cannot fail for this clock
        return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

// Bytes a second of the best of some copies; 0: no memory.
static double measure_copy(void)
{
        uint8_t *from = malloc(COPY_BYTES);
        uint8_t *to = malloc(COPY_BYTES);
        double best_s = 0;

        for (int i = 0; from && to && i < COPIES; i++) {
                double begin_s;
                double took_s;

                memset(from, i, COPY_BYTES);
                begin_s = now_s();
                memcpy(to, from, COPY_BYTES);
                took_s = now_s() - begin_s;
                if (to[i] == (uint8_t)i && (best_s == 0 || took_s < best_s))
                        best_s = took_s;
        }
        free(from);
        free(to);
        return best_s > 0 ? COPY_BYTES / best_s : 0;
}

int cairn_break_even(struct cairn_client *client, double bytes_per_token, double prefill_tokens_s,
                     struct cairn_break_even *ret_answer)
{
        struct reading reading = {0};
        struct cairn_break_even answer = {0};
        int status;

        if (!(bytes_per_token > 0 && bytes_per_token < 1e15) ||
            !(prefill_tokens_s > 0 && prefill_tokens_s < 1e15))
                return cairn_client_fail(client, CAIRN_EINVAL,
                                         "break_even: bytes a token and tokens a second must be "
                                         "above zero");
        status = cairn_stats(client, NULL, on_metric, &reading);
        if (status != CAIRN_OK)
                return status;
        if (client->copy_bytes_s == 0)
                client->copy_bytes_s = measure_copy();
        answer.ram_bytes_s = client->copy_bytes_s;
        if (reading.bytes >= READ_BYTES_MIN && reading.seconds > 0)
                answer.disk_bytes_s = reading.bytes / reading.seconds;
        answer.disk_tokens_s = answer.disk_bytes_s / bytes_per_token;
        answer.ram_tokens_s = answer.ram_bytes_s / bytes_per_token;
        answer.load_from_disk = answer.disk_bytes_s == 0 || answer.disk_tokens_s > prefill_tokens_s;
        answer.load_from_ram = answer.ram_bytes_s == 0 || answer.ram_tokens_s > prefill_tokens_s;
        *ret_answer = answer;
        return CAIRN_OK;
}
