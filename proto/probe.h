// Static probes (USDT) for tracers like bpftrace and perf: a nop in the code and a note in the
// file, where systemtap-sdt-dev was there at the build; else nothing. Provider "cairn"; the list of
// probes and what they tell is in daemon/PROBES.md. Arguments are integers or addresses.
// May be used by: all folders. May use: nothing. Threads: any.
#ifndef CAIRN_PROBE_H
#define CAIRN_PROBE_H

#ifdef CAIRN_HAVE_SDT
#include <sys/sdt.h>
#define CAIRN_PROBE2(name, a, b)       DTRACE_PROBE2(cairn, name, a, b)
#define CAIRN_PROBE3(name, a, b, c)    DTRACE_PROBE3(cairn, name, a, b, c)
#define CAIRN_PROBE4(name, a, b, c, d) DTRACE_PROBE4(cairn, name, a, b, c, d)
#else
#define CAIRN_PROBE2(name, a, b)       ((void)sizeof(a), (void)sizeof(b))
#define CAIRN_PROBE3(name, a, b, c)    ((void)sizeof(a), (void)sizeof(b), (void)sizeof(c))
#define CAIRN_PROBE4(name, a, b, c, d) (CAIRN_PROBE2(name, a, b), CAIRN_PROBE2(name, c, d))
#endif

#endif
