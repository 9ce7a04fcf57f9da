rampfs_test(NAME revoke SOURCES unit/test_revoke.c unit/programs_world.c unit/programs_prog.c
  unit/memory_fixture.c NEEDS programs memory meta base_loop base LABELS quick TIMEOUT 300)
