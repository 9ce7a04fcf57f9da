# ThreadSanitizer bears neither threads begun in the child of a process that has some, nor a main
# thread that ends before the others: programs and strangers have both.
set(threads_sessions threads)
foreach(part programs sessions strangers)
  rampfs_test(NAME ${part} SOURCES unit/test_${part}.c unit/programs_world.c unit/programs_prog.c
    unit/memory_fixture.c NEEDS programs memory meta base_loop base LABELS quick ${threads_${part}} TIMEOUT 300)
endforeach()
