# The PyTorch bridge: src/torch/*.cc -> opentrn/_torch.*.so, linked with libopentrn.so and the installed torch.
# Needs Python 3 with development files (found before this file is included) and the target `opentrn`.
execute_process(
  COMMAND ${Python_EXECUTABLE} -c "import torch, os; print(os.path.dirname(torch.__file__)); print(torch.__version__); print(int(torch._C._GLIBCXX_USE_CXX11_ABI))"
  OUTPUT_VARIABLE OPENTRN_TORCH_INFO
  ERROR_VARIABLE OPENTRN_TORCH_ERROR
  RESULT_VARIABLE OPENTRN_TORCH_RESULT
  OUTPUT_STRIP_TRAILING_WHITESPACE)
if(NOT OPENTRN_TORCH_RESULT EQUAL 0)
  message(FATAL_ERROR "The bridge needs an installed torch (or -DOPENTRN_BRIDGE=OFF): ${OPENTRN_TORCH_ERROR}")
endif()
string(REPLACE "\n" ";" OPENTRN_TORCH_INFO "${OPENTRN_TORCH_INFO}")
list(GET OPENTRN_TORCH_INFO 0 OPENTRN_TORCH_DIR)
list(GET OPENTRN_TORCH_INFO 1 OPENTRN_TORCH_VERSION)
list(GET OPENTRN_TORCH_INFO 2 OPENTRN_TORCH_ABI)
message(STATUS "Bridge: torch ${OPENTRN_TORCH_VERSION} in ${OPENTRN_TORCH_DIR}")

file(GLOB OPENTRN_BRIDGE_SOURCES CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/torch/*.cc)
Python_add_library(opentrn_bridge MODULE WITH_SOABI ${OPENTRN_BRIDGE_SOURCES})
set_target_properties(opentrn_bridge PROPERTIES
  OUTPUT_NAME _torch
  CXX_VISIBILITY_PRESET hidden
  LIBRARY_OUTPUT_DIRECTORY ${OPENTRN_PYTHON_DIR}
  BUILD_WITH_INSTALL_RPATH ON
  INSTALL_RPATH "$ORIGIN;$ORIGIN/../torch/lib")
install(TARGETS opentrn_bridge LIBRARY DESTINATION opentrn COMPONENT python)
target_compile_definitions(opentrn_bridge PRIVATE
  _GLIBCXX_USE_CXX11_ABI=${OPENTRN_TORCH_ABI}
  OPENTRN_TORCH_VERSION="${OPENTRN_TORCH_VERSION}"
  USE_DISTRIBUTED USE_C10D_GLOO FMT_HEADER_ONLY=1)
target_include_directories(opentrn_bridge SYSTEM PRIVATE
  ${OPENTRN_TORCH_DIR}/include ${OPENTRN_TORCH_DIR}/include/torch/csrc/api/include)
# Ours before torch's: both trees have a folder called torch.
target_include_directories(opentrn_bridge BEFORE PRIVATE ${CMAKE_SOURCE_DIR}/src)
target_compile_options(opentrn_bridge PRIVATE -Wno-unused-parameter -Wno-sign-compare)
target_link_directories(opentrn_bridge PRIVATE ${OPENTRN_TORCH_DIR}/lib)
target_link_libraries(opentrn_bridge PRIVATE opentrn torch_python torch_cpu torch c10)
target_precompile_headers(opentrn_bridge PRIVATE ${CMAKE_SOURCE_DIR}/src/torch/pch.h)

# Which torch this was built for, readable without loading the module.
file(MAKE_DIRECTORY ${OPENTRN_PYTHON_DIR})
file(WRITE ${OPENTRN_PYTHON_DIR}/_torch_build.json "{\"torch\": \"${OPENTRN_TORCH_VERSION}\"}\n")
install(FILES ${OPENTRN_PYTHON_DIR}/_torch_build.json DESTINATION opentrn COMPONENT python)
