#include "ndmesh/base/yaml.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <sstream>

#include "ndmesh/base/error.h"
#include "ndmesh/base/text.h"

namespace ndmesh {
namespace {

constexpr std::size_t most_levels = 8;

/// Builds the tree from the parser's events, so that nothing is expanded or nested before it has been
/// checked.
class Builder : public YAML::EventHandler {
 public:
  explicit Builder(const std::string& source) : source_(source) {}

  YamlNode take() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnAnchor(const YAML::Mark& mark, const std::string& name) override {
    fail(mark, "the anchor &" + name + " is not read; write the value where it is used");
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    fail(mark, "aliases are not read; write the value out");
  }
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    open(mark, "?", anchor, YamlNode::Kind::null);
    close();
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    YamlNode& node = open(mark, tag, anchor, YamlNode::Kind::scalar);
    node.scalar = value;
    node.is_quoted = tag == "!";
    close();
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, YamlNode::Kind::list);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, YamlNode::Kind::map);
  }
  void OnMapEnd() override { close(); }

 private:
  /// A mapping's children alternate between key and value; a key is read into key_ first.
  struct Level {
    YamlNode node;
    std::string key;
    bool key_read = false;
  };

  YamlNode& open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YamlNode::Kind kind) {
    if (anchor != 0) {
      fail(mark, "anchors are not read; write the value where it is used");
    }
    if (!tag.empty() && tag != "?" && tag != "!") {
      fail(mark, "the tag " + shown(tag) + " is not read");
    }
    if (levels_.size() >= most_levels) {
      fail(mark, fmt::format("nested deeper than {} levels", most_levels));
    }
    levels_.push_back({});
    levels_.back().node.kind = kind;
    levels_.back().node.line = mark.line + 1;
    return levels_.back().node;
  }

  void close() {
    YamlNode node = std::move(levels_.back().node);
    levels_.pop_back();
    if (levels_.empty()) {
      root_ = std::move(node);
      return;
    }
    Level& parent = levels_.back();
    if (parent.node.kind == YamlNode::Kind::list) {
      parent.node.items.push_back(std::move(node));
    } else if (parent.key_read) {
      parent.node.entries.emplace_back(std::move(parent.key), std::move(node));
      parent.key_read = false;
    } else {
      read_key(parent, node);
    }
  }

  void read_key(Level& parent, const YamlNode& node) {
    if (node.kind != YamlNode::Kind::scalar) {
      fail_at(node.line, "a key is " + node.shown_value() + "; allowed: a text");
    }
    const auto same = [&](const auto& entry) { return entry.first == node.scalar; };
    if (std::any_of(parent.node.entries.begin(), parent.node.entries.end(), same)) {
      fail_at(node.line, "the key " + shown(node.scalar) + " is given twice");
    }
    parent.key = node.scalar;
    parent.key_read = true;
  }

  [[noreturn]] void fail(const YAML::Mark& mark, const std::string& what) const {
    fail_at(mark.line + 1, what);
  }
  [[noreturn]] void fail_at(int line, const std::string& what) const {
    throw RequestError(fmt::format("{}, line {}: {}", source_, line, what));
  }

  const std::string& source_;
  std::vector<Level> levels_;
  YamlNode root_;
};

}  // namespace

YamlNode::YamlNode() = default;

std::string YamlNode::shown_value() const {
  switch (kind) {
    case Kind::null:
      return "nothing";
    case Kind::scalar:
      return shown(scalar);
    case Kind::list:
      return "a list";
    case Kind::map:
      return "a mapping";
  }
  return {};
}

YamlNode parse_yaml(const std::string& text, const std::string& source) {
  Builder builder(source);
  try {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    parser.HandleNextDocument(builder);
    Builder second(source);
    if (parser.HandleNextDocument(second)) {
      throw RequestError(source + ": holds more than one YAML document");
    }
  } catch (const YAML::Exception& error) {
    const std::string place = error.mark.is_null() ? "" : fmt::format(", line {}", error.mark.line + 1);
    throw RequestError(fmt::format("{}{}: is not valid YAML: {}", source, place, error.msg));
  }
  return builder.take();
}

}  // namespace ndmesh
