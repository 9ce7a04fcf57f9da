rampfs_test(NAME revoke SOURCES unit/test_revoke.c unit/programs_world.c unit/programs_prog.c
  unit/memory_fixture.c NEEDS programs memory meta base_loop base LABELS quick TIMEOUT 300)
# A call that was put into a stopped process takes long to come out of it.
target_link_options(test_revoke PRIVATE -Wl,--wrap=waitpid)
