// "0,2-5", as the kernel's own lists of processors are written.
#include "daemon/cpu_list.h"

#include <stdbool.h>
#include <string.h>

#include "proto/status.h"

// A number below CAIRN_CPUS_MAX at *text, which moves beyond it. False: none there.
static bool take_number(const char **text, uint32_t *ret_number)
{
        uint32_t number = 0;
        const char *at = *text;

        while (*at >= '0' && *at <= '9' && number < CAIRN_CPUS_MAX)
                number = number * 10 + (uint32_t)(*at++ - '0');
        if (at == *text || number >= CAIRN_CPUS_MAX)
                return false;
        *text = at;
        *ret_number = number;
        return true;
}

int cairn_cpu_list_parse(const char *text, struct cairn_cpu_list *ret_list)
{
        struct cairn_cpu_list list = {0};
        bool seen[CAIRN_CPUS_MAX] = {false};

        while (*text) {
                uint32_t first;
                uint32_t last;

                if (!take_number(&text, &first))
                        return CAIRN_EINVAL;
                last = first;
                if (*text == '-') {
                        text++;
                        if (!take_number(&text, &last) || last < first)
                                return CAIRN_EINVAL;
                }
                for (uint32_t cpu = first; cpu <= last; cpu++) {
                        if (seen[cpu])
                                return CAIRN_EINVAL;
                        seen[cpu] = true;
                        list.cpus[list.count++] = (uint16_t)cpu;
                }
                if (*text == ',' && text[1] != '\0')
                        text++;
                else if (*text)
                        return CAIRN_EINVAL;
        }
        *ret_list = list;
        return CAIRN_OK;
}
