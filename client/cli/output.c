// What commands print with.
#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "client/cli/cli.h"

int cairn_cli_fail(const struct cairn_cli *cli, int status)
{
        fprintf(stderr, "cairnctl: %s (%s)\n", cairn_client_error(cli->client),
                cairn_error_name(status));
        return status == CAIRN_EDISCONNECTED ? CAIRN_CLI_NO_DAEMON : CAIRN_CLI_FAILED;
}

void cairn_cli_json_text(FILE *to, const char *text)
{
        fputc('"', to);
        for (; *text; text++) {
                unsigned char c = (unsigned char)*text;

                if (c == '"' || c == '\\')
                        fprintf(to, "\\%c", c);
                else if (c < ' ' || c == 127)
                        fprintf(to, "\\u%04x", c);
                else
                        fputc(c, to);
        }
        fputc('"', to);
}

void cairn_cli_json_number(FILE *to, double value)
{
        if (!isfinite(value))
                fputs("null", to);
        else if (value == floor(value) && fabs(value) < 1e15)
                fprintf(to, "%.0f", value);
        else
                fprintf(to, "%.17g", value);
}

void cairn_cli_bytes(double bytes, char ret_text[16])
{
        static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
        int unit = 0;

        while (bytes >= 1024 && unit < 5) {
                bytes /= 1024;
                unit++;
        }
        (void)snprintf(ret_text, 16, unit == 0 ? "%.0f %s" : "%.1f %s", bytes, units[unit]);
}

void cairn_cli_duration(double ms, char ret_text[16])
{
        double s = ms / 1000;

        if (ms < 1000)
                (void)snprintf(ret_text, 16, "%.0f ms", ms);
        else if (s < 120)
                (void)snprintf(ret_text, 16, "%.1f s", s);
        else if (s < 7200)
                (void)snprintf(ret_text, 16, "%.0fm %02.0fs", floor(s / 60), floor(fmod(s, 60)));
        else
                (void)snprintf(ret_text, 16, "%.0fh %02.0fm", floor(s / 3600),
                               floor(fmod(s, 3600) / 60));
}

int cairn_cli_parse_count(const char *option, const char *text, uint64_t max, uint64_t *ret_value)
{
        char *end;

        errno = 0;
        *ret_value = strtoull(text, &end, 10);
        if (text[0] >= '0' && text[0] <= '9' && *end == '\0' && errno == 0 && *ret_value <= max)
                return CAIRN_CLI_OK;
        fprintf(stderr, "cairnctl: --%s %s: a number from 0 to %llu, please\n", option, text,
                (unsigned long long)max);
        return CAIRN_CLI_USAGE;
}
