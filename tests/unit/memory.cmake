foreach(part memory memory_pages memory_room)
  rampfs_test(NAME ${part} SOURCES unit/test_${part}.c unit/memory_fixture.c NEEDS memory LABELS quick threads)
endforeach()
rampfs_test(NAME memory_kill SOURCES unit/test_memory_kill.c unit/memory_fixture.c NEEDS memory LABELS quick)
