// What `cairnctl top` shows, as lines of text. May be used by: client/cli.
#ifndef CAIRN_CLI_TOP_H
#define CAIRN_CLI_TOP_H

#include "client/cli/sample.h"

enum {
        CAIRN_CLI_TOP_LINES_MAX = 64,
        CAIRN_CLI_TOP_COLUMNS = 100
};

struct cairn_cli_page {
        char lines[CAIRN_CLI_TOP_LINES_MAX][CAIRN_CLI_TOP_COLUMNS + 1];
        size_t count;
};

// What happened from one sample to the other, and how things stand.
void cairn_cli_top_page(const char *socket, const struct cairn_cli_sample *from,
                        const struct cairn_cli_sample *to, struct cairn_cli_page *ret_page);

#endif
