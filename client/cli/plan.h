// The picture of a plan. May be used by: client/cli. May use: the public API.
#ifndef CAIRN_CLI_PLAN_H
#define CAIRN_CLI_PLAN_H

#include <stdio.h>

#include "cairn/cairn.h"

// An SVG: share of the tokens (by equal factors) against the mass they hold; a thin line a layer,
// thick ones for the average and for the head that holds least.
void cairn_cli_plan_draw(FILE *to, const struct cairn_plan *plan, double target_mass);

#endif
