// The loop looks for what comes next before it sleeps.
#include "daemon/spin.h"

#include <sched.h>

#include "daemon/clock.h"
#include "proto/status.h"

int cairn_spin_init(struct cairn_spin *spin, uv_loop_t *loop, uint64_t window_us)
{
        cpu_set_t allowed;

        *spin = (struct cairn_spin){.window_ns = 1000 * window_us};
        // On a single processor whoever is to be looked for would wait for it.
        if (sched_getaffinity(0, sizeof(allowed), &allowed) == 0 && CPU_COUNT(&allowed) < 2)
                spin->window_ns = 0;
        return uv_idle_init(loop, &spin->idle) == 0 ? CAIRN_OK : CAIRN_ENOMEM;
}

// Once a turn of the loop, which does not sleep while this runs.
static void on_idle(uv_idle_t *idle)
{
        struct cairn_spin *spin = (struct cairn_spin *)idle;

        if (cairn_clock_ns() - spin->since_ns > spin->window_ns)
                (void)uv_idle_stop(idle); // cannot fail
        else
                (void)sched_yield(); // always there
}

void cairn_spin_note(struct cairn_spin *spin)
{
        uint64_t now_ns = spin->window_ns > 0 ? cairn_clock_ns() : 0;
        bool soon = now_ns - spin->since_ns <= spin->window_ns;

        if (spin->window_ns == 0 || uv_is_closing((uv_handle_t *)&spin->idle))
                return;
        spin->since_ns = now_ns;
        if (soon)
                (void)uv_idle_start(&spin->idle, on_idle); // cannot fail with a callback
}
