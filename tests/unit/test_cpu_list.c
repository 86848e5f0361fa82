// Lists of processors.
#include <criterion/criterion.h>

#include "daemon/cpu_list.h"
#include "proto/status.h"

Test(cpu_list, good_ones)
{
        struct cairn_cpu_list list;

        cr_assert_eq(cairn_cpu_list_parse("", &list), CAIRN_OK);
        cr_assert_eq(list.count, 0);
        cr_assert_eq(cairn_cpu_list_parse("7,0-2,1023", &list), CAIRN_OK);
        cr_assert_eq(list.count, 5);
        cr_assert_eq(list.cpus[0], 7);
        cr_assert_eq(list.cpus[3], 2);
        cr_assert_eq(list.cpus[4], 1023);
        cr_assert_eq(cairn_cpu_list_parse("0-1023", &list), CAIRN_OK);
        cr_assert_eq(list.count, 1024);
}

Test(cpu_list, bad_ones_leave_the_list)
{
        static const char *const bad[] = {",",      "1,",          "-1",  "2-1",   "1-",
                                          "a",      "1 2",         "1,1", "0-2,2", "1024",
                                          "0-1024", "99999999999", "1,,2"};
        struct cairn_cpu_list list = {.count = 77};

        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
                cr_assert_eq(cairn_cpu_list_parse(bad[i], &list), CAIRN_EINVAL, "%s", bad[i]);
        cr_assert_eq(list.count, 77);
}
