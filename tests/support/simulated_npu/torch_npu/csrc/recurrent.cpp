// The cells of LSTM and GRU, which torch asks other devices than its own for as one kernel each.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include <tuple>
#include <vector>

namespace npu {
namespace {

using at::Tensor;
using std::optional;

Tensor sum(const Tensor& gates, const optional<Tensor>& bias) {
  return bias.has_value() && bias->defined() ? gates + *bias : gates;
}

Tensor joined(const std::vector<Tensor>& gates) {
  return at::cat(gates, 1);
}

// Returns the new hidden and cell states, and the gates for the backward pass.
std::tuple<Tensor, Tensor, Tensor> lstm_cell(
    const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& cx, const optional<Tensor>& input_bias,
    const optional<Tensor>& hidden_bias) {
  const auto gates = (sum(input_gates, input_bias) + sum(hidden_gates, hidden_bias)).chunk(4, 1);
  const auto i = gates[0].sigmoid(), f = gates[1].sigmoid(), g = gates[2].tanh(), o = gates[3].sigmoid();
  const auto cy = f * cx + i * g;
  return {o * cy.tanh(), cy, joined({i, f, g, o})};
}

// Returns the gradients of the gates, of the cell state and of a bias.
std::tuple<Tensor, Tensor, Tensor> lstm_cell_backward(
    const optional<Tensor>& grad_hy, const optional<Tensor>& grad_cy, const Tensor& cx, const Tensor& cy,
    const Tensor& workspace, bool has_bias) {
  const auto gates = workspace.chunk(4, 1);
  const auto &i = gates[0], &f = gates[1], &g = gates[2], &o = gates[3];
  const auto through_h = grad_hy.has_value() && grad_hy->defined() ? *grad_hy : at::zeros_like(cy);
  const auto tanh = cy.tanh();
  const auto through_c = sum(through_h * o * (1 - tanh * tanh), grad_cy);
  const auto grad_gates = joined(
      {through_c * g * i * (1 - i), through_c * cx * f * (1 - f), through_c * i * (1 - g * g),
       through_h * tanh * o * (1 - o)});
  return {grad_gates, through_c * f, has_bias ? grad_gates.sum(0) : Tensor()};
}

// Returns the new hidden state, and what the backward pass needs.
std::tuple<Tensor, Tensor> gru_cell(
    const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& hx, const optional<Tensor>& input_bias,
    const optional<Tensor>& hidden_bias) {
  const auto input = sum(input_gates, input_bias).chunk(3, 1), hidden = sum(hidden_gates, hidden_bias).chunk(3, 1);
  const auto r = (input[0] + hidden[0]).sigmoid(), z = (input[1] + hidden[1]).sigmoid();
  const auto n = (input[2] + r * hidden[2]).tanh();
  return {n + z * (hx - n), joined({r, z, n, hx, hidden[2]})};
}

// Returns the gradients of both kinds of gates, of the hidden state and of both biases.
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> gru_cell_backward(
    const Tensor& grad_hy, const Tensor& workspace, bool has_bias) {
  const auto parts = workspace.chunk(5, 1);
  const auto &r = parts[0], &z = parts[1], &n = parts[2], &hx = parts[3], &hidden_n = parts[4];
  const auto grad_z = grad_hy * (hx - n) * z * (1 - z), grad_n = grad_hy * (1 - z) * (1 - n * n);
  const auto grad_r = grad_n * hidden_n * r * (1 - r);
  const auto of_input = joined({grad_r, grad_z, grad_n}), of_hidden = joined({grad_r, grad_z, grad_n * r});
  return {
      of_input, of_hidden, grad_hy * z, has_bias ? of_input.sum(0) : Tensor(), has_bias ? of_hidden.sum(0) : Tensor()};
}

} // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("_thnn_fused_lstm_cell", &lstm_cell);
  library.impl("_thnn_fused_lstm_cell_backward_impl", &lstm_cell_backward);
  library.impl("_thnn_fused_gru_cell", &gru_cell);
  library.impl("_thnn_fused_gru_cell_backward", &gru_cell_backward);
}

} // namespace npu
