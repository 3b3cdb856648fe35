#include "ndmesh/serve/byte_text.h"

#include <gmock/gmock.h>

namespace ndmesh::serve {
namespace {

TEST(ByteText, TokensAreBytes) {
  EXPECT_THAT(tokens_of("a\xc3\xa4"), testing::ElementsAre(97, 195, 164));
  EXPECT_EQ(text_of(tokens_of("größe\n")), "größe\n");
  EXPECT_EQ(text_of({72, 256, 105, -1}), "Hi");
}

}  // namespace
}  // namespace ndmesh::serve
