#include "ndmesh/plan/time/fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ndmesh/base/error.h"
#include "ndmesh/plan/time/step_time.h"

namespace ndmesh::plan {
namespace {

using Vector = std::vector<double>;

constexpr double row_deviation = 0.08;  ///< of log(predicted / measured) that is nobody's fault
constexpr double robust_limit = 1;  ///< deviations from which a row counts by its distance, not its square
constexpr double farthest = 3;      ///< spreads that a constant may move
constexpr double step_size = 0.05;  ///< spreads, of numerical derivatives
constexpr int most_rounds = 12;

/// The unknowns: for each fitted constant the logarithm of its ratio to its start, in spreads.
class Unknowns {
 public:
  explicit Unknowns(const Constants& start) : start_(start) {
    for (std::size_t i = 0; i < start.list.size(); ++i) {
      if (start.list[i].spread > 0) {
        fitted_.push_back(i);
      }
    }
  }

  std::size_t size() const { return fitted_.size(); }

  Constants constants(const Vector& unknowns) const {
    Constants result = start_;
    for (std::size_t i = 0; i < fitted_.size(); ++i) {
      Constant& constant = result.list[fitted_[i]];
      constant.value *= std::exp(unknowns[i] * constant.spread);
    }
    return result;
  }

 private:
  const Constants& start_;
  std::vector<std::size_t> fitted_;
};

Vector residuals(const std::vector<Observation>& observations, const Constants& constants) {
  Vector result;
  for (const Observation& observation : observations) {
    const TimeModel model(observation.problem, constants);
    result.push_back(std::log(model.step(observation.candidate).seconds / observation.seconds) /
                     row_deviation);
  }
  return result;
}

/// Huber's weight: outliers pull with constant force.
double weight(double residual) {
  const double size = std::abs(residual);
  return size <= robust_limit ? 1 : robust_limit / size;
}

double loss(const Vector& rows, const Vector& unknowns) {
  double sum = 0;
  for (const double row : rows) {
    const double size = std::abs(row);
    sum += size <= robust_limit ? row * row : robust_limit * (2 * size - robust_limit);
  }
  for (const double unknown : unknowns) {
    sum += unknown * unknown;
  }
  return sum;
}

/// Solves a positive definite system by Cholesky's factors; the matrix is used up.
Vector solve(std::vector<Vector> matrix, Vector right) {
  const std::size_t n = right.size();
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j <= i; ++j) {
      double sum = matrix[i][j];
      for (std::size_t k = 0; k < j; ++k) {
        sum -= matrix[i][k] * matrix[j][k];
      }
      matrix[i][j] = i == j ? std::sqrt(sum) : sum / matrix[j][j];
    }
  }
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t k = 0; k < i; ++k) {
      right[i] -= matrix[i][k] * right[k];
    }
    right[i] /= matrix[i][i];
  }
  for (std::size_t i = n; i-- > 0;) {
    for (std::size_t k = i + 1; k < n; ++k) {
      right[i] -= matrix[k][i] * right[k];
    }
    right[i] /= matrix[i][i];
  }
  return right;
}

/// The Gauss-Newton step at `unknowns`, damped.
Vector newton_step(const std::vector<Vector>& derivatives, const Vector& rows, const Vector& unknowns,
                   double damping) {
  const std::size_t n = unknowns.size();
  std::vector<Vector> matrix(n, Vector(n, 0.0));
  Vector right(n, 0.0);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j <= i; ++j) {
      for (std::size_t row = 0; row < rows.size(); ++row) {
        matrix[i][j] += weight(rows[row]) * derivatives[i][row] * derivatives[j][row];
      }
    }
    matrix[i][i] += (1 + damping) + damping * matrix[i][i];
    right[i] = -unknowns[i];
    for (std::size_t row = 0; row < rows.size(); ++row) {
      right[i] -= weight(rows[row]) * derivatives[i][row] * rows[row];
    }
  }
  return solve(std::move(matrix), std::move(right));
}

std::vector<Vector> derivatives_at(const std::vector<Observation>& observations, const Unknowns& unknowns,
                                   const Vector& at, const Vector& rows) {
  std::vector<Vector> derivatives;
  for (std::size_t i = 0; i < at.size(); ++i) {
    Vector moved = at;
    moved[i] += step_size;
    Vector column = residuals(observations, unknowns.constants(moved));
    for (std::size_t row = 0; row < rows.size(); ++row) {
      column[row] = (column[row] - rows[row]) / step_size;
    }
    derivatives.push_back(std::move(column));
  }
  return derivatives;
}

void check_observations(const std::vector<Observation>& observations) {
  Problems problems;
  for (std::size_t i = 0; i < observations.size(); ++i) {
    if (!(observations[i].seconds > 0) || !std::isfinite(observations[i].seconds)) {
      problems.add(fmt::format("observation {} has a step time of {} s: it must be above 0", i + 1,
                               observations[i].seconds));
    }
  }
  problems.raise();
}

}  // namespace

Constants fit(const std::vector<Observation>& observations, const Constants& start) {
  check_observations(observations);
  if (observations.empty()) {
    return start;
  }
  const Unknowns unknowns(start);
  Vector at(unknowns.size(), 0.0);
  Vector rows = residuals(observations, start);
  double best = loss(rows, at);
  double damping = 0.01;
  for (int round = 0; round < most_rounds; ++round) {
    const std::vector<Vector> derivatives = derivatives_at(observations, unknowns, at, rows);
    const double before = best;
    for (int attempt = 0; attempt < 6 && best == before; ++attempt) {
      const Vector step = newton_step(derivatives, rows, at, damping);
      Vector next = at;
      for (std::size_t i = 0; i < at.size(); ++i) {
        next[i] = std::clamp(at[i] + step[i], -farthest, farthest);
      }
      Vector next_rows = residuals(observations, unknowns.constants(next));
      const double next_loss = loss(next_rows, next);
      damping *= next_loss < best ? 0.3 : 5;
      if (next_loss < best) {
        at = std::move(next);
        rows = std::move(next_rows);
        best = next_loss;
      }
    }
    if (before - best < 1e-4 * before) {
      break;
    }
  }
  return unknowns.constants(at);
}

}  // namespace ndmesh::plan
