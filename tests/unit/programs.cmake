foreach(part programs sessions strangers)
  rampfs_test(NAME ${part} SOURCES unit/test_${part}.c unit/programs_world.c unit/programs_prog.c
    unit/memory_fixture.c NEEDS programs memory meta base_loop base LABELS quick TIMEOUT 300)
endforeach()
