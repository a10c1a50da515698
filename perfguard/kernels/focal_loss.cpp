// Sigmoid focal loss and its slope, both in one pass over logits and targets; compiled once for each instruction set.
//
// With p = sigmoid(x) and a target y in [0, 1] the loss of an element is  weight * q^gamma * cross_entropy,
//   q = p (1 - y) + (1 - p) y,   cross_entropy = softplus(x) - x y,   weight = alpha y + (1 - alpha) (1 - y)
// (Lin et al., arXiv 1708.02002, equation 5). Nothing below grows with |x|: only exp(-|x|) is ever computed. Let
//   tail = exp(-|x|),   near_p = 1 / (1 + tail),   far = the part of y on the other side of x (1 - y where x >= 0, else y).
// Then  q = near_p (far + tail (1 - far)),   cross_entropy = |x| far + log1p(tail),   and the slope, d loss / d x, is
//   sign(x) weight q^gamma (far - near_p tail + gamma cross_entropy odds (2 far - 1)),   odds = p (1 - p) / q.

#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>
#include <ATen/cpu/vec/functional.h>
#include <ATen/cpu/vec/vec.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <array>
#include <limits>
#include <tuple>
#include <type_traits>
#include <vector>

namespace {

using at::Tensor;
using at::vec::Vectorized;

enum class Power { Zero, One, Two, Any };

struct Settings {
  double alpha; // Weight of targets of 1; negative: all weigh 1
  double gamma;
  double scale; // Multiplies losses and slopes
};

template <typename T>
struct alignas(64) Totals { // Of one thread, on a cache line of its own
  double loss = 0;
  T least_target = 0;
  T largest_target = 1;
};

template <typename T>
struct Part {
  Vectorized<T> loss;
  Vectorized<T> slope;
};

// log(1 + t) for t in [0, 1], to 2e-7 in float: a polynomial of least relative error.
template <typename T>
Vectorized<T> log_of_one_plus(const Vectorized<T>& t) {
  if constexpr (std::is_same_v<T, float>) {
    constexpr std::array<float, 9> kTerms = {0.9999999403953552f,  -0.4999949336051941f,   0.3331909775733948f,
                                             -0.2484298199415207f, 0.19106005132198334f,   -0.13663242757320404f,
                                             0.07822591066360474f, -0.029505213722586632f, 0.0052326880395412445f};
    Vectorized<float> sum(kTerms.back());
    for (int term = int(kTerms.size()) - 2; term >= 0; term--) {
      sum = at::vec::fmadd(sum, t, Vectorized<float>(kTerms[term]));
    }
    return sum * t;
  } else {
    return t.log1p();
  }
}

template <Power power, typename T>
Part<T> focal_loss(const Vectorized<T>& logit, const Vectorized<T>& target, const Settings& settings) {
  using V = Vectorized<T>;
  const V zero(T(0)), one(T(1)), two(T(2)), gamma(T(settings.gamma)), scale(T(settings.scale));
  const V is_negative = logit < zero;
  const V magnitude = logit.abs();
  const V tail = magnitude.neg().exp_u20();
  const V log_tail = log_of_one_plus<T>(tail);
  const V far = V::blendv(one - target, target, is_negative);
  // Here 0 * inf would be NaN, and mix underflows where |x| is large.
  const V is_certain = far <= V(std::numeric_limits<T>::min());
  const V mix = V::blendv(at::vec::fmadd(tail, one - far, far), one, is_certain);
  const V share = one / ((one + tail) * mix);
  const V near_p = share * mix;
  const V odds = V::blendv(share * tail, near_p, is_certain);
  const V cross_entropy = V::blendv(magnitude * far, zero, is_certain) + log_tail;

  V factor = scale;
  if (settings.alpha >= 0) {
    factor = scale * at::vec::fmadd(V(T(2 * settings.alpha - 1)), target, V(T(1 - settings.alpha)));
  }
  const V q = near_p * V::blendv(mix, tail, is_certain);
  if constexpr (power == Power::One) {
    factor = factor * q;
  } else if constexpr (power == Power::Two) {
    factor = factor * q * q;
  } else if constexpr (power == Power::Any) {
    factor = factor * (gamma * (V::blendv(mix.log(), magnitude.neg(), is_certain) - log_tail)).exp();
  }
  // Where the cross-entropy is infinite, odds are 0, and their product vanishes.
  const V finite = at::vec::minimum(cross_entropy, V(std::numeric_limits<T>::max()));
  const V rest = far - near_p * tail;
  const V slope = factor * at::vec::fmadd(gamma * (finite * odds), two * far - one, rest);
  return {factor * cross_entropy, V::blendv(slope, slope.neg(), is_negative)};
}

constexpr int64_t kBlock = 256; // Elements at a time: a few KiB, so that nothing leaves the nearest cache

template <typename T, typename S>
void load(const char* from, int64_t stride, int64_t count, T* to) {
  if constexpr (std::is_same_v<S, at::BFloat16> || std::is_same_v<S, at::Half>) {
    if (stride == int64_t(sizeof(S))) {
      const S* values = reinterpret_cast<const S*>(from);
      int64_t i = 0;
      for (; i + Vectorized<S>::size() <= count; i += Vectorized<S>::size()) {
        const auto [low, high] = at::vec::convert_to_float<S>(Vectorized<S>::loadu(values + i));
        low.store(to + i);
        high.store(to + i + Vectorized<float>::size());
      }
      from += i * stride, to += i, count -= i;
    }
  }
  for (int64_t i = 0; i < count; i++) {
    to[i] = static_cast<T>(*reinterpret_cast<const S*>(from + i * stride));
  }
}

template <typename T, typename S>
void store(const T* from, int64_t stride, int64_t count, char* to) {
  if constexpr (std::is_same_v<S, at::BFloat16> || std::is_same_v<S, at::Half>) {
    if (stride == int64_t(sizeof(S))) {
      S* values = reinterpret_cast<S*>(to);
      int64_t i = 0;
      for (; i + Vectorized<S>::size() <= count; i += Vectorized<S>::size()) {
        const auto low = Vectorized<float>::loadu(from + i);
        const auto high = Vectorized<float>::loadu(from + i + Vectorized<float>::size());
        at::vec::convert_from_float<S>(low, high).store(values + i);
      }
      from += i, to += i * stride, count -= i;
    }
  }
  for (int64_t i = 0; i < count; i++) {
    *reinterpret_cast<S*>(to + i * stride) = static_cast<S>(from[i]);
  }
}

template <Power power, typename T>
void block(const T* logits, const T* targets, int64_t count, const Settings& settings, T* losses, T* slopes,
           Totals<T>& totals) {
  using V = Vectorized<T>;
  V sum(T(0)), least(T(0)), largest(T(1));
  int64_t i = 0;
  const auto step = [&](int64_t left) {
    const V target = V::loadu(targets + i, left);
    const Part<T> part = focal_loss<power, T>(V::loadu(logits + i, left), target, settings);
    sum = sum + (left < V::size() ? V::set(V(T(0)), part.loss, left) : part.loss);
    least = V::blendv(least, target, target < least); // NaN is in range: it goes on to the loss
    largest = V::blendv(largest, target, target > largest);
    if (losses != nullptr) {
      part.loss.store(losses + i, left);
    }
    if (slopes != nullptr) {
      part.slope.store(slopes + i, left);
    }
  };
  for (; i + V::size() <= count; i += V::size()) {
    step(V::size());
  }
  if (i < count) {
    step(count - i);
  }
  std::array<T, V::size()> sums, lows, highs;
  sum.store(sums.data()), least.store(lows.data()), largest.store(highs.data());
  for (int64_t lane = 0; lane < V::size(); lane++) {
    totals.loss += sums[lane];
    totals.least_target = std::min(totals.least_target, lows[lane]);
    totals.largest_target = std::max(totals.largest_target, highs[lane]);
  }
}

// Rows of elements, read and written where they are if they lie one after the other in the type of the computation.
template <Power power, typename T, typename S>
void rows(char** data, const int64_t* strides, int64_t inner, int64_t outer, const Settings& settings, int losses_at,
          int slopes_at, int logits_at, int operands, std::vector<Totals<T>>& totals) {
  std::array<T, kBlock> logits, targets, losses, slopes;
  Totals<T>& mine = totals[at::get_thread_num()];
  const auto is_direct = [&](int operand) { return std::is_same_v<S, T> && strides[operand] == int64_t(sizeof(T)); };
  for (int64_t row = 0; row < outer; row++) {
    const auto at_row = [&](int operand) { return data[operand] + row * strides[operands + operand]; };
    for (int64_t first = 0; first < inner; first += kBlock) {
      const int64_t count = std::min(kBlock, inner - first);
      const auto place = [&](int operand) { return at_row(operand) + first * strides[operand]; };
      const auto input = [&](int operand, std::array<T, kBlock>& buffer) -> const T* {
        if (is_direct(operand)) {
          return reinterpret_cast<const T*>(place(operand));
        }
        load<T, S>(place(operand), strides[operand], count, buffer.data());
        return buffer.data();
      };
      const auto output = [&](int operand, std::array<T, kBlock>& buffer) -> T* {
        if (operand < 0) {
          return nullptr;
        }
        return is_direct(operand) ? reinterpret_cast<T*>(place(operand)) : buffer.data();
      };
      T* const loss = output(losses_at, losses);
      T* const slope = output(slopes_at, slopes);
      block<power, T>(input(logits_at, logits), input(logits_at + 1, targets), count, settings, loss, slope, mine);
      if (loss == losses.data()) {
        store<T, S>(loss, strides[losses_at], count, place(losses_at));
      }
      if (slope == slopes.data()) {
        store<T, S>(slope, strides[slopes_at], count, place(slopes_at));
      }
    }
  }
}

template <Power power, typename T, typename S>
double run(at::TensorIterator& iterator, const Settings& settings, int losses_at, int slopes_at) {
  std::vector<Totals<T>> totals(at::get_num_threads());
  const int operands = iterator.ntensors();
  // The threads are those of libtorch: this library needs no OpenMP of its own.
  iterator.for_each([&](char** data, const int64_t* strides, int64_t inner, int64_t outer) {
    rows<power, T, S>(data, strides, inner, outer, settings, losses_at, slopes_at, operands - 2, operands, totals);
  });
  double loss = 0;
  for (const Totals<T>& of_thread : totals) {
    TORCH_CHECK_VALUE(of_thread.least_target >= 0 && of_thread.largest_target <= 1,
                      "targets must be in [0, 1], but one of them is ",
                      of_thread.least_target < 0 ? of_thread.least_target : of_thread.largest_target);
    loss += of_thread.loss;
  }
  return loss;
}

template <typename T, typename S>
double run_with(at::TensorIterator& iterator, const Settings& settings, int losses_at, int slopes_at) {
  if (settings.gamma == 0) {
    return run<Power::Zero, T, S>(iterator, settings, losses_at, slopes_at);
  }
  if (settings.gamma == 1) {
    return run<Power::One, T, S>(iterator, settings, losses_at, slopes_at);
  }
  if (settings.gamma == 2) {
    return run<Power::Two, T, S>(iterator, settings, losses_at, slopes_at);
  }
  return run<Power::Any, T, S>(iterator, settings, losses_at, slopes_at);
}

// The sum of all losses (0-d, float64), each loss and each slope; what is not asked for is undefined.
std::tuple<double, Tensor, Tensor> focal_loss_pass(const Tensor& logits, const Tensor& targets, double alpha, double gamma,
                                                   double scale, bool with_losses, bool with_slopes) {
  TORCH_CHECK(logits.scalar_type() == targets.scalar_type(), "logits and targets must have one dtype");
  const Settings settings{alpha, gamma, scale};
  const auto made = [&](bool is_wanted) { return is_wanted ? at::empty_like(logits) : at::empty({0}, logits.options()); };
  const Tensor losses = made(with_losses), slopes = made(with_slopes);
  at::TensorIteratorConfig config;
  config.resize_outputs(false).check_all_same_dtype(false);
  if (with_losses) {
    config.add_output(losses);
  }
  if (with_slopes) {
    config.add_output(slopes);
  }
  auto iterator = config.add_const_input(logits).add_const_input(targets).build();
  const int losses_at = with_losses ? 0 : -1, slopes_at = with_slopes ? int(with_losses) : -1;
  double sum = 0;
  switch (logits.scalar_type()) {
    case at::kFloat: sum = run_with<float, float>(iterator, settings, losses_at, slopes_at); break;
    case at::kDouble: sum = run_with<double, double>(iterator, settings, losses_at, slopes_at); break;
    case at::kBFloat16: sum = run_with<float, at::BFloat16>(iterator, settings, losses_at, slopes_at); break;
    case at::kHalf: sum = run_with<float, at::Half>(iterator, settings, losses_at, slopes_at); break;
    default: TORCH_CHECK(false, "logits must be floating point");
  }
  return {sum, losses, slopes};
}

} // namespace

TORCH_LIBRARY(PERFGUARD_LIBRARY, library) {
  library.def(
      "focal_loss_pass(Tensor logits, Tensor targets, float alpha, float gamma, float scale, bool with_losses, "
      "bool with_slopes) -> (float, Tensor, Tensor)",
      focal_loss_pass);
}
