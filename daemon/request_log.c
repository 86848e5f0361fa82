// What the log says of a request once it is answered.
#include <stdio.h>

#include "daemon/clock.h"
#include "daemon/log.h"
#include "daemon/request.h"
#include "daemon/server.h"
#include "daemon/session.h"
#include "proto/probe.h"
#include "proto/status.h"

// Facts of a request, as fields of a line.
struct facts {
        char id[24];
        char tenant[16];
        char ms[24];
        char trace_id[CAIRN_TRACE_ID_TEXT];
        char span_id[CAIRN_TRACE_SPAN_TEXT];
        struct cairn_log_field fields[CAIRN_LOG_FIELDS_MAX];
        size_t count;
};

static void add(struct facts *facts, const char *name, const char *value, bool in_text)
{
        facts->fields[facts->count++] = (struct cairn_log_field){name, value, in_text};
}

static void collect(const struct cairn_request *request, int status, uint64_t duration_ns,
                    struct facts *ret_facts)
{
        *ret_facts = (struct facts){.count = 0};
        (void)snprintf(ret_facts->id, sizeof(ret_facts->id), "%llu",
                       (unsigned long long)request->id);
        (void)snprintf(ret_facts->tenant, sizeof(ret_facts->tenant), "%u",
                       request->session->tenant);
        (void)snprintf(ret_facts->ms, sizeof(ret_facts->ms), "%.3f", (double)duration_ns / 1e6);
        add(ret_facts, "kind", cairn_kind_name(request->kind), false);
        add(ret_facts, "request", ret_facts->id, false);
        add(ret_facts, "tenant", ret_facts->tenant, false);
        add(ret_facts, "duration_ms", ret_facts->ms, false);
        if (status != CAIRN_OK)
                add(ret_facts, "status", cairn_status_name(status), false);
        if (request->traced) {
                cairn_trace_text(&request->trace, ret_facts->trace_id, ret_facts->span_id);
                add(ret_facts, "trace_id", ret_facts->trace_id, true);
                add(ret_facts, "span_id", ret_facts->span_id, true);
        }
}

// Failures that are the daemon's, or of what it stands on, and not the caller's.
static bool is_trouble(int status)
{
        return status == CAIRN_EIO || status == CAIRN_ECORRUPT || status == CAIRN_EINTERNAL ||
               status == CAIRN_ENOSPC || status == CAIRN_ENOMEM;
}

void cairn_request_note_end(const struct cairn_request *request, int status, const char *text)
{
        struct cairn_server *server = request->server;
        uint64_t slow_ms = server->config->slow_request_ms;
        uint64_t duration_ns = cairn_clock_ns() - request->received_ns;
        enum cairn_log_level level = is_trouble(status) ? CAIRN_LOG_WARNING : CAIRN_LOG_DEBUG;
        bool slow = slow_ms > 0 && duration_ns >= slow_ms * 1000000u;
        struct facts facts;

        cairn_stats_add_latency(&server->counters.latency[request->kind], duration_ns);
        CAIRN_PROBE4(request__end, request->kind, request->id, status, duration_ns);
        if (!slow && status == CAIRN_OK)
                return;
        collect(request, status, duration_ns, &facts);
        if (slow)
                cairn_log_fields(CAIRN_LOG_WARNING, NULL, facts.fields, facts.count,
                                 "slow: %s %llu of tenant %u took %llu ms",
                                 cairn_kind_name(request->kind), (unsigned long long)request->id,
                                 request->session->tenant,
                                 (unsigned long long)(duration_ns / 1000000u));
        if (status != CAIRN_OK)
                cairn_log_fields(level, NULL, facts.fields, facts.count,
                                 "failed: %s %llu of tenant %u: %s: %s",
                                 cairn_kind_name(request->kind), (unsigned long long)request->id,
                                 request->session->tenant, cairn_status_name(status), text);
}
