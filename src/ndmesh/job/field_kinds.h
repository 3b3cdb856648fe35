#pragma once

#include <algorithm>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "ndmesh/base/error.h"
#include "ndmesh/base/nearest.h"
#include "ndmesh/base/text.h"
#include "ndmesh/base/yaml_values.h"
#include "ndmesh/job/field.h"

/// The kinds of keys: each function makes the Field of one key from its name, range, help and place in a Job.
namespace ndmesh::job {

/// The place of a key: at(&Job::mesh, &mesh::MeshSizes::tp). Works on Job and const Job.
template <typename Section, typename Value>
auto at(Section Job::*section, Value Section::*key) {
  return [ section, key ](auto& job) -> auto& {
    return job.*section.*key;
  };
}

template <typename Member>
Field integer(std::string key, IntegerRange range, std::string help, Member member) {
  return {std::move(key),
          "integer",
          range.name(),
          std::move(help),
          [member](const Job& job) { return yaml_of(member(job)); },
          [member, range](Job& job, const YamlNode& node) { member(job) = integer_of(node, range); }};
}

template <typename Member>
Field number(std::string key, NumberRange range, std::string help, Member member) {
  return {std::move(key),
          "number",
          range.name(),
          std::move(help),
          [member](const Job& job) { return yaml_of(member(job)); },
          [member, range](Job& job, const YamlNode& node) { member(job) = number_of(node, range); }};
}

template <typename Member>
Field boolean(std::string key, std::string help, Member member) {
  return {std::move(key),
          "true or false",
          "true, false",
          std::move(help),
          [member](const Job& job) { return yaml_of(member(job)); },
          [member](Job& job, const YamlNode& node) { member(job) = boolean_of(node); }};
}

template <typename Member>
Field text(std::string key, std::string range, std::string help, Member member) {
  return {std::move(key),
          "text",
          std::move(range),
          std::move(help),
          [member](const Job& job) { return yaml_of(member(job)); },
          [member](Job& job, const YamlNode& node) { member(job) = text_of(node); }};
}

template <typename Member>
Field texts(std::string key, std::string range, std::string help, Member member) {
  return {std::move(key),
          "list of texts",
          std::move(range),
          std::move(help),
          [member](const Job& job) { return yaml_of(member(job)); },
          [member](Job& job, const YamlNode& node) { member(job) = texts_of(node); }};
}

/// A name and the value that it stands for.
template <typename Value>
using Choices = std::vector<std::pair<std::string, Value>>;

/// The choices that `values` are, each under its own name (`name_of`, found beside the type).
template <typename Value>
Choices<Value> choices_of(std::initializer_list<Value> values) {
  Choices<Value> choices;
  for (const Value value : values) {
    choices.emplace_back(name_of(value), value);
  }
  return choices;
}

/// Throws for what is none of `choices`; a name that is only planned is told from a typing error. `allowed`
/// is what the message lists, where that is more than the names.
template <typename Value>
Value chosen(const YamlNode& node, const Choices<Value>& choices, const std::vector<std::string>& planned,
             const std::string& allowed = {}) {
  std::vector<std::string> names;
  for (const auto& [name, value] : choices) {
    if (node.kind == YamlNode::Kind::scalar && node.scalar == name) {
      return value;
    }
    names.push_back(name);
  }
  const std::string& given =
      node.kind == YamlNode::Kind::map && !node.entries.empty() ? node.entries.front().first : node.scalar;
  if (std::find(planned.begin(), planned.end(), given) != planned.end()) {
    throw RequestError(given + " is not built yet; allowed: " + join(names));
  }
  const std::string near = node.kind == YamlNode::Kind::scalar ? did_you_mean(given, names) : "";
  refuse(node, (allowed.empty() ? join(names) : allowed) + near);
}

template <typename Value, typename Member>
Field choice(std::string key, Choices<Value> choices, std::string help, Member member,
             std::vector<std::string> planned = {}) {
  std::vector<std::string> names;
  for (const auto& entry : choices) {
    names.push_back(entry.first);
  }
  const auto get = [member, choices](const Job& job) {
    for (const auto& [name, value] : choices) {
      if (value == member(job)) {
        return yaml_of(name);
      }
    }
    throw RequestError("a job holds a value that has no name");
  };
  return {std::move(key),
          "one of",
          join(names),
          std::move(help),
          get,
          [member, choices, planned](Job& job, const YamlNode& node) {
            member(job) = chosen(node, choices, planned);
          }};
}

/// A choice among texts that the job keeps as they are.
template <typename Member>
Field named(std::string key, const std::vector<std::string>& names, std::string help, Member member,
            std::vector<std::string> planned = {}) {
  Choices<std::string> choices;
  for (const std::string& name : names) {
    choices.emplace_back(name, name);
  }
  return choice(std::move(key), std::move(choices), std::move(help), member, std::move(planned));
}

/// A key of a part that is not built: only the value that leaves the part out is taken.
inline Field neutral(std::string key, const std::string& value, std::string help,
                     std::vector<std::string> planned) {
  const Choices<int> only = {{value, 0}};
  return {std::move(key),
          "one of",
          value,
          std::move(help),
          [value](const Job&) { return value; },
          [only, planned = std::move(planned)](Job&, const YamlNode& node) { chosen(node, only, planned); }};
}

}  // namespace ndmesh::job
