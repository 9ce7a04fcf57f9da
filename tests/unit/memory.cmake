foreach(part memory memory_pages)
  rampfs_test(NAME ${part} SOURCES unit/test_${part}.c unit/memory_fixture.c NEEDS memory LABELS quick threads)
endforeach()
rampfs_test(NAME memory_room SOURCES unit/test_memory_room.c unit/memory_fixture.c unit/lock_keeper.c
  NEEDS memory LABELS quick threads)
target_link_options(test_memory_room PRIVATE -Wl,--wrap=lseek,--wrap=madvise)
rampfs_test(NAME memory_kill SOURCES unit/test_memory_kill.c unit/memory_fixture.c NEEDS memory LABELS quick)
# The kernel's answer about a mount is changed; an unlink fails.
target_link_options(test_memory PRIVATE -Wl,--wrap=statfs -Wl,--wrap=unlinkat)
rampfs_test(NAME memory_times SOURCES unit/test_memory_times.c unit/memory_fixture.c NEEDS memory LABELS quick)
# A release that comes between two steps of another thread.
target_link_options(test_memory_times PRIVATE -Wl,--wrap=clock_gettime -Wl,--wrap=futimens)
