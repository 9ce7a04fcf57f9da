foreach(part meta meta_fsm meta_journal)
  rampfs_test(NAME ${part} SOURCES ${CMAKE_CURRENT_LIST_DIR}/test_${part}.c NEEDS meta LABELS quick TIMEOUT 300)
endforeach()
