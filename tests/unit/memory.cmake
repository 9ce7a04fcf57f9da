foreach(part memory memory_pages memory_room memory_kill)
  rampfs_test(NAME ${part} SOURCES unit/test_${part}.c unit/memory_fixture.c NEEDS memory LABELS quick)
endforeach()
