#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "ndmesh/plan/measured/validation.h"

namespace ndmesh::cli {

/// One document: rows, left_out, memory, verdict, time, groups, clusters, models; MAPE and regret in percent,
/// tau in -1..1, what nothing was measured for null.
nlohmann::ordered_json validation_json(const plan::Validation& validation);

/// A table by group for people, and how many rows were left out for which reasons.
std::string validation_table(const plan::Validation& validation);

/// One line a row: prediction beside measurement.
std::string validation_rows(const plan::Validation& validation);

/// A page in Markdown: figures by group, cluster and model, the rows that are furthest off, what was left
/// out.
std::string validation_page(const plan::Validation& validation);

}  // namespace ndmesh::cli
