rampfs_test(NAME kernel SOURCES unit/test_kernel.c NEEDS base Threads::Threads LABELS quick)
