# libopentrn.so (all layers), the nanobind module opentrn._core, and the bridge to PyTorch.
#
# Everything lands in <build>/python/opentrn beside links to the Python sources, so that one entry on PYTHONPATH (or a
# .pth file) runs the build tree; `cmake --install` copies the same files into a wheel.
set(OPENTRN_PYTHON_DIR ${CMAKE_BINARY_DIR}/python/opentrn)

find_package(Python 3.10 REQUIRED COMPONENTS Interpreter Development.Module)

# ---- the core library
# Made of the layers' object files, not of their archives: the lowering table registers itself from static objects that
# nothing refers to. A module linked with libopentrn.so does not see the archives, so there is one copy of everything.
set(objects "")
foreach(layer ${OPENTRN_LAYERS})
  get_target_property(type ${layer} TYPE)
  if(type STREQUAL "STATIC_LIBRARY")
    list(APPEND objects $<TARGET_OBJECTS:${layer}>)
  endif()
endforeach()
add_library(opentrn SHARED ${objects})
set_target_properties(opentrn PROPERTIES LINKER_LANGUAGE CXX)
target_link_libraries(opentrn PRIVATE hwy Threads::Threads)
target_link_libraries(opentrn PUBLIC fmt::fmt-header-only)
target_compile_definitions(opentrn PUBLIC OPENTRN_VERSION="${PROJECT_VERSION}")
set_target_properties(opentrn PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${OPENTRN_PYTHON_DIR}
                      INSTALL_RPATH "$ORIGIN" BUILD_WITH_INSTALL_RPATH ON)

# ---- opentrn._core
execute_process(COMMAND ${Python_EXECUTABLE} -m nanobind --cmake_dir OUTPUT_VARIABLE nanobind_ROOT
                OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed ERROR_QUIET)
if(failed)
  message(FATAL_ERROR "nanobind is missing for ${Python_EXECUTABLE}: `make setup`, or pip install nanobind, "
                      "or configure with -DOPENTRN_PYTHON=OFF")
endif()
find_package(nanobind CONFIG REQUIRED)
file(GLOB sources CONFIGURE_DEPENDS src/python/*.cc)
if(sources)
  nanobind_add_module(opentrn_core_module NB_STATIC ${sources})
  target_link_libraries(opentrn_core_module PRIVATE opentrn)
  set_target_properties(opentrn_core_module PROPERTIES OUTPUT_NAME _core
                        LIBRARY_OUTPUT_DIRECTORY ${OPENTRN_PYTHON_DIR}
                        INSTALL_RPATH "$ORIGIN" BUILD_WITH_INSTALL_RPATH ON)
  install(TARGETS opentrn_core_module LIBRARY DESTINATION opentrn COMPONENT python)
endif()
install(TARGETS opentrn LIBRARY DESTINATION opentrn COMPONENT python)
install(DIRECTORY chips DESTINATION opentrn COMPONENT python FILES_MATCHING PATTERN "*.json")

# ---- what it was built for (opentrn doctor; the check that torch was not exchanged under the bridge)
set(torch_version "")
if(OPENTRN_BRIDGE)
  execute_process(COMMAND ${Python_EXECUTABLE} -c "import importlib.metadata as m; print(m.version('torch'))"
                  OUTPUT_VARIABLE torch_version OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
file(CONFIGURE OUTPUT ${OPENTRN_PYTHON_DIR}/build_info.json CONTENT [[{
 "torch": "@torch_version@",
 "python": "@Python_VERSION@",
 "compiler": "@CMAKE_CXX_COMPILER_ID@ @CMAKE_CXX_COMPILER_VERSION@",
 "build_type": "@CMAKE_BUILD_TYPE@",
 "version": "@PROJECT_VERSION@"
}
]] @ONLY)
install(FILES ${OPENTRN_PYTHON_DIR}/build_info.json DESTINATION opentrn COMPONENT python)

# ---- the build tree as an importable package
file(MAKE_DIRECTORY ${OPENTRN_PYTHON_DIR})
file(GLOB entries CONFIGURE_DEPENDS python/opentrn/*)
foreach(entry ${entries})
  get_filename_component(name ${entry} NAME)
  if(NOT name STREQUAL "__pycache__")
    file(CREATE_LINK ${entry} ${OPENTRN_PYTHON_DIR}/${name} SYMBOLIC)
  endif()
endforeach()
file(CREATE_LINK ${CMAKE_SOURCE_DIR}/chips ${OPENTRN_PYTHON_DIR}/chips SYMBOLIC)
if(EXISTS ${CMAKE_SOURCE_DIR}/python/torch_neuronx)
  file(CREATE_LINK ${CMAKE_SOURCE_DIR}/python/torch_neuronx ${CMAKE_BINARY_DIR}/python/torch_neuronx SYMBOLIC)
endif()
# Metadata, so that PyTorch finds the entry points of the build tree as it finds those of an installed wheel.
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS pyproject.toml tools/dev_metadata.py)
execute_process(COMMAND ${Python_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tools/dev_metadata.py
                        ${CMAKE_SOURCE_DIR}/pyproject.toml ${CMAKE_BINARY_DIR}/python ${PROJECT_VERSION}
                COMMAND_ERROR_IS_FATAL ANY)

if(OPENTRN_BRIDGE AND EXISTS ${CMAKE_SOURCE_DIR}/cmake/Bridge.cmake)
  include(Bridge)
endif()
