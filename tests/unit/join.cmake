rampfs_test(NAME join SOURCES ${CMAKE_CURRENT_LIST_DIR}/test_join.c NEEDS transport LABELS quick TIMEOUT 60)
