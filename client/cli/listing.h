// What the lists of blocks, contexts and leases share: filters from options, and pages.
// May be used by: client/cli. May use: the public API.
#ifndef CAIRN_CLI_LISTING_H
#define CAIRN_CLI_LISTING_H

#include "client/cli/cli.h"

struct cairn_cli_listing {
        struct cairn_cli *cli;
        const char *what;   // "blocks": the command, and the field of the JSON object
        const char *titles; // above the rows, in text
        struct cairn_list list;
        uint64_t left;  // entries that may still be shown
        uint64_t shown; // entries so far
        uint8_t key[32];
};

// Runs `page` until enough is shown or the end is there. `page` asks for the next page of
// listing->list and gives the cursor after it. Returns an exit code.
int cairn_cli_list(struct cairn_cli_listing *listing,
                   int (*page)(struct cairn_cli_listing *listing, uint64_t *ret_cursor));
// Before each entry: titles, commas. Then the entry prints itself, as a row or as an object.
void cairn_cli_list_entry(struct cairn_cli_listing *listing);
// "tenant": .., "pid": .., "client": ".."
void cairn_cli_json_holder(const struct cairn_holder *holder);
// The text with what a terminal might obey replaced, in ret_text[size].
void cairn_cli_plain(const char *text, char *ret_text, size_t size);

#endif
