// The numbers over HTTP, as Prometheus' text: GET /metrics. Also /live (200 while the loop turns)
// and /ready (503 once the daemon is stopping). Keys and token ids are never shown. May be used by:
// daemon. May use: libmicrohttpd, libuv. Threads: the loop's.
#ifndef CAIRN_METRICS_H
#define CAIRN_METRICS_H

struct cairn_metrics;
struct cairn_server;

// Serves at the configured metrics_address; *ret_metrics is NULL if there is none. Logs what is
// wrong: CAIRN_EINVAL (no address), CAIRN_EBUSY, CAIRN_EIO, CAIRN_ENOMEM.
int cairn_metrics_create(struct cairn_server *server, struct cairn_metrics **ret_metrics);
// Stops serving. Its handles are closed with the loop's others. NULL is fine.
void cairn_metrics_stop(struct cairn_metrics *metrics);
// After the loop has closed every handle. NULL is fine.
void cairn_metrics_destroy(struct cairn_metrics *metrics);

#endif
