// cairnd: reads the configuration, then serves.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/audit_offline.h"
#include "daemon/config.h"
#include "daemon/log.h"
#include "daemon/numa.h"
#include "daemon/server.h"
#include "daemon/verify_offline.h"
#include "policy/landmark/landmark.h"
#include "proto/status.h"

enum {
        EXIT_CONFIGURATION = 78
}; // EX_CONFIG: systemd is told not to restart on it

static int run(struct cairn_config *config)
{
        char text[CAIRN_TEXT_BYTES_MAX];

        cairn_log_init((enum cairn_log_level)config->log_level);
        cairn_log_set_json(config->log_format == 1);
        if (cairn_isa_choose(config->isa) != CAIRN_OK) {
                cairn_log(CAIRN_LOG_ERROR, "leave isa empty, or name another",
                          "this machine or build has no kernels \"%s\"", config->isa);
                return EXIT_CONFIGURATION;
        }
        if (cairn_isa_warning())
                cairn_log(CAIRN_LOG_WARNING, "other kernels serve, with the same answers", "%s",
                          cairn_isa_warning());
        if (config->numa_node_list.count > 0 &&
            cairn_numa_stay(&config->numa_node_list, &config->numa_cpus, text) != CAIRN_OK) {
                cairn_log(CAIRN_LOG_ERROR, NULL, "%s", text);
                return EXIT_CONFIGURATION;
        }
        return cairn_server_run(config);
}

int main(int argc, char **argv)
{
        enum cairn_config_action action;
        struct cairn_config config;
        char text[CAIRN_TEXT_BYTES_MAX] = "";
        int status;
        int code = 0;

        if (cairn_verify_offline_main(argc, argv, &code) ||
            cairn_audit_offline_main(argc, argv, &code))
                return code;
        cairn_config_init(&config);
        status = cairn_config_load(&config, argc, argv, environ, &action, text);
        if (action == CAIRN_CONFIG_HELP) {
                cairn_config_print_help(stdout);
        } else if (action == CAIRN_CONFIG_EXAMPLE) {
                cairn_config_print_example(stdout);
        } else if (action == CAIRN_CONFIG_MANUAL) {
                cairn_config_print_manual(stdout);
        } else if (action == CAIRN_CONFIG_VERSION) {
                (void)puts("cairnd " CAIRN_VERSION);
        } else {
                if (status == CAIRN_OK)
                        status = cairn_config_resolve(&config, text);
                if (status != CAIRN_OK) {
                        cairn_log(CAIRN_LOG_ERROR, NULL, "%s", text);
                        code = EXIT_CONFIGURATION;
                } else if (action == CAIRN_CONFIG_DUMP) {
                        code = cairn_config_print(&config, stdout) ? 0 : 1;
                } else if (action == CAIRN_CONFIG_RUN) {
                        code = run(&config);
                }
        }
        cairn_config_finish(&config);
        return code;
}
