rampfs_test(NAME memory SOURCES unit/test_memory.c unit/memory_fixture.c NEEDS memory LABELS quick)
