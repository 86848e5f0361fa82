// Watchdog and reload.
#include "daemon/operate.h"

#include <signal.h>
#include <systemd/sd-daemon.h>

#include "daemon/clock.h"
#include "daemon/log.h"
#include "daemon/quota.h"
#include "daemon/server.h"
#include "proto/status.h"

bool cairn_operator_only(uint32_t kind)
{
        switch (kind) {
        case CAIRN_KIND_SET_QUOTA:
        case CAIRN_KIND_SET_HOLD:
        case CAIRN_KIND_LIST_HOLDS:
        case CAIRN_KIND_AUDIT:
        case CAIRN_KIND_VERIFY:
        case CAIRN_KIND_DRAIN:
        case CAIRN_KIND_RELOAD:
        case CAIRN_KIND_LIST_BLOCKS:
        case CAIRN_KIND_LIST_CONTEXTS:
        case CAIRN_KIND_LIST_LEASES:
        case CAIRN_KIND_SHOW_CONFIG: return true;
        default: return false;
        }
}

int cairn_operate_reload(struct cairn_server *server, char *ret_text)
{
        int status;

        (void)sd_notifyf(0, "RELOADING=1\nMONOTONIC_USEC=%llu",
                         (unsigned long long)(cairn_clock_ns() / 1000));
        status = cairn_config_reload(server->config, ret_text);
        if (status == CAIRN_OK) {
                cairn_quotas_apply(server);
                cairn_log_set_level((enum cairn_log_level)server->config->log_level);
                cairn_log_set_json(server->config->log_format == 1);
                cairn_log(CAIRN_LOG_INFO, NULL, "reload: %s", ret_text);
        } else {
                cairn_log(CAIRN_LOG_ERROR, "the old values stay; correct it and reload again",
                          "reload: %s", ret_text);
        }
        (void)sd_notify(0, "READY=1");
        return status;
}

static void on_hangup(uv_signal_t *handle, int number)
{
        char text[CAIRN_TEXT_BYTES_MAX];

        (void)number;
        (void)cairn_operate_reload(handle->data, text); // logged
}

static void on_watchdog(uv_timer_t *timer)
{
        (void)timer;
        (void)sd_notify(0, "WATCHDOG=1");
}

int cairn_operate_start(struct cairn_server *server)
{
        uint64_t interval_us;

        server->hangup.data = server;
        if (uv_signal_start(&server->hangup, on_hangup, SIGHUP) != 0)
                return CAIRN_EIO;
        if (sd_watchdog_enabled(0, &interval_us) > 0) {
                uint64_t half_ms = interval_us / 2000;

                if (uv_timer_start(&server->watchdog, on_watchdog, half_ms, half_ms) != 0)
                        return CAIRN_EIO;
        }
        return CAIRN_OK;
}
