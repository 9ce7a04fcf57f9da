rampfs_test(NAME proto SOURCES unit/test_proto.c NEEDS transport base LABELS quick TIMEOUT 60)
