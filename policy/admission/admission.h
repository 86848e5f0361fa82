// The admission filters by name. Interface: proto/admission.h. May be used by: daemon, tests.
#ifndef CAIRN_ADMISSION_FILTERS_H
#define CAIRN_ADMISSION_FILTERS_H

#include "proto/admission.h"

extern const struct cairn_admission_ops cairn_admission_second_use; // used since it was put
extern const struct cairn_admission_ops cairn_admission_tinylfu;    // tinylfu.h

#endif
