# ndmesh_embed(NAME FILE SYMBOL) compiles a text file into the library ndmesh_NAME, so that programs need no file at run time:
#   namespace ndmesh::NAME { extern const std::string_view SYMBOL; }
# A change of the file configures again.
function(ndmesh_embed name file symbol)
  set(source ${CMAKE_CURRENT_SOURCE_DIR}/${name}/${file})
  set(generated ${CMAKE_CURRENT_BINARY_DIR}/embedded/${name}_${symbol}.cpp)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})
  file(READ ${source} text)
  file(CONFIGURE OUTPUT ${generated} @ONLY CONTENT [[
#include <string_view>
namespace ndmesh::@name@ {
extern const std::string_view @symbol@;
const std::string_view @symbol@ = R"embedded(@text@)embedded";
}  // namespace ndmesh::@name@
]])
  target_sources(ndmesh_${name} PRIVATE ${generated})
endfunction()
