// Copyright 2026 The hf_metalstm authors.
// Licensed under the Apache License, Version 2.0 (the "License"); see the LICENSE file.
//
// HyperLSTM: an LSTM over [x_t ; h^_{t-1} ; h_{t-1}] gives h^_t, from it come three vectors a gate, z_h, z_x and z_b,
// and from these what scales the gate's products: (D_h z_h) * (W_h h_{t-1}) + (D_x z_x) * (W_x x_t) + D_b z_b + b_0.
//
// "Parts" are the twelve pairs of kind (hidden, input, bias) and gate, kind by kind.

#pragma once

#include "sequence.h"

namespace {

struct HyperLstmSizes {
  int64_t d, h, m, z;
  explicit HyperLstmSizes(const int64_t* sizes) : d(sizes[0]), h(sizes[1]), m(sizes[2]), z(sizes[3]) {}
};

constexpr int kParts = 12;

inline int64_t hyper_lstm_work(const int64_t* sizes) {
  const HyperLstmSizes s(sizes);
  return 4 * (s.m + s.h) * s.d + 4 * s.m * (s.m + s.h) + 4 * s.h * s.h + kParts * s.z * (s.m + s.h);
}

enum HyperLstmWeight {
  kHyperInputWeight,   // (4m, d)
  kHyperHyperWeight,   // (4m, m)
  kHyperHiddenWeight,  // (4m, h)
  kZWeights,           // (12, z, m)
  kScaleWeights,       // (12, h, z)
  kMainInputWeight,    // (4h, d)
  kMainHiddenWeight,   // (4h, h)
  kHyperNumWeights
};

template <typename T>
struct HyperLstmForward {
  enum { kNumSizes = 4, kNumWeights = kHyperNumWeights };
  enum Data {
    kInputs,     // padded (d)
    kHyperBias,  // (4m)
    kZBias,      // (12z)
    kBias,       // (4h), b_0
    kFirstHidden,
    kFirstCell,  // (rows, h)
    kFirstHyperHidden,
    kFirstHyperCell,  // (rows, m)
    kOutputs,         // padded (h)
    kFinalHidden,
    kFinalCell,
    kFinalHyperHidden,
    kFinalHyperCell,
    kSums,         // tokens (4m + 4h): activated hyper gates and W_x x; this and the next null without a backward pass
    kGates,        // tokens (4h), activated
    kCells,        // tokens (h)
    kHyperHidden,  // tokens (m)
    kHyperCells,   // tokens (m)
    kProducts,     // tokens (4h), W_h h_{t-1}
    kZVectors,     // tokens (12z)
    kScaleValues,  // tokens (8h), D_h z_h and D_x z_x
    kNumData,
    kFirstSum = kNumData
  };
  static int64_t sum_size(const int64_t*, int) { return 0; }

  struct Weights {
    Packed<T> input, hyper, main, zs, scales[kParts];
    int64_t size;

    Weights(const int64_t* sizes, const void* packed) {
      const HyperLstmSizes s(sizes);
      PackedPlaces<T> places(packed);
      input = places.take(s.d, 4 * s.m + 4 * s.h);
      hyper = places.take(s.m + s.h, 4 * s.m);
      main = places.take(s.h, 4 * s.h);
      zs = places.take(s.m, kParts * s.z);
      for (Packed<T>& scale : scales) scale = places.take(s.z, s.h);
      size = places.used();
    }
  };
  static void pack(const int64_t* sizes, const void* const* weights, Weights& w) {
    const HyperLstmSizes s(sizes);
    const auto source = [&](int index) { return static_cast<const T*>(weights[index]); };
    w.input.put_transposed(0, s.d, 0, 4 * s.m, source(kHyperInputWeight), s.d);
    w.input.put_transposed(0, s.d, 4 * s.m, 4 * s.h, source(kMainInputWeight), s.d);
    w.hyper.put_transposed(0, s.m, 0, 4 * s.m, source(kHyperHyperWeight), s.m);
    w.hyper.put_transposed(s.m, s.h, 0, 4 * s.m, source(kHyperHiddenWeight), s.h);
    w.main.put_transposed(0, s.h, 0, 4 * s.h, source(kMainHiddenWeight), s.h);
    w.zs.put_transposed(0, s.m, 0, kParts * s.z, source(kZWeights), s.m);
    for (int part = 0; part < kParts; ++part)
      w.scales[part].put_transposed(0, s.z, 0, s.h, source(kScaleWeights) + part * s.h * s.z, s.z);
  }
  static int64_t work(const int64_t* sizes) { return hyper_lstm_work(sizes); }

  struct Memory {
    T *state, *cell, *hyper_cell, *hyper_sums, *products, *zs, *scales, *gate_sums, *bias, *sums;

    Memory(const int64_t* sizes, int64_t rows, int64_t tokens, Scratch& scratch) {
      const HyperLstmSizes s(sizes);
      state = scratch.take<T>(rows * (s.m + s.h));  // [h^ ; h]
      cell = scratch.take<T>(rows * s.h);
      hyper_cell = scratch.take<T>(rows * s.m);
      hyper_sums = scratch.take<T>(rows * 4 * s.m);
      products = scratch.take<T>(rows * 4 * s.h);
      zs = scratch.take<T>(rows * kParts * s.z);
      scales = scratch.take<T>(rows * kParts * s.h);
      gate_sums = scratch.take<T>(4 * s.h);
      bias = scratch.take<T>(4 * s.m + 4 * s.h);
      sums = scratch.take<T>(tokens * (4 * s.m + 4 * s.h));
    }
  };

  static void run(const Arguments& call, const Group& group, void* memory) {
    const HyperLstmSizes s(call.sizes);
    const int64_t d = s.d, h = s.h, m = s.m, z = s.z, width = 4 * m + 4 * h, state_width = m + h;
    void* const* data = call.data;
    const Weights w(call.sizes, call.packed);
    const Lines lines{call.batch, group};
    Scratch scratch(memory);
    const Memory mem(call.sizes, group.count, group.tokens, scratch);
    const bool keep = data[kGates] != nullptr;
    copy(mem.bias, line<T>(data[kHyperBias], 0, 4 * m), 4 * m);
    set_zero(mem.bias + 4 * m, 4 * h);
    clear_padding<T>(lines, data[kOutputs], h);
    // What is kept for the backward pass takes the place of what it is computed from.
    const auto sums = [&](int64_t i, int64_t position) {
      return keep ? line<T>(data[kSums], lines.first_token(i) + position, width)
                  : mem.sums + (group.starts[i] + position) * width;
    };
    for (int64_t i = 0; i < group.count; ++i) {
      const int64_t row = lines.row(i);
      copy(mem.state + i * state_width, line<T>(data[kFirstHyperHidden], row, m), m);
      copy(mem.state + i * state_width + m, line<T>(data[kFirstHidden], row, h), h);
      copy(mem.cell + i * h, line<T>(data[kFirstCell], row, h), h);
      copy(mem.hyper_cell + i * m, line<T>(data[kFirstHyperCell], row, m), m);
      multiply_bias(lines.length(i), line<T>(data[kInputs], lines.first_padded(i), d), d, w.input,
                    static_cast<const T*>(mem.bias), sums(i, 0), width);
    }
    walk_forward(
        lines,
        [&](int64_t t, int64_t alive) {
          multiply(alive, mem.state, state_width, w.hyper, mem.hyper_sums, 4 * m);
          multiply(alive, mem.state + m, state_width, w.main, mem.products, 4 * h);
          for (int64_t i = 0; i < alive; ++i) {
            const int64_t token = lines.token(i, t);
            T* from_input = sums(i, lines.position(i, t));
            CellForward<T>{mem.hyper_sums + i * 4 * m,
                           from_input,
                           keep ? from_input : nullptr,
                           mem.hyper_cell + i * m,
                           line_or_null<T>(data[kHyperCells], token, m),
                           mem.state + i * state_width,
                           line_or_null<T>(data[kHyperHidden], token, m)}
                .run(m);
            if (keep) copy(line<T>(data[kProducts], token, 4 * h), mem.products + i * 4 * h, 4 * h);
          }
          multiply_bias(alive, mem.state, state_width, w.zs, line<T>(data[kZBias], 0, kParts * z), mem.zs, kParts * z);
          for (int part = 0; part < kParts; ++part)
            multiply(alive, mem.zs + part * z, kParts * z, w.scales[part], mem.scales + part * h, kParts * h);
          for (int64_t i = 0; i < alive; ++i) {
            const int64_t token = lines.token(i, t);
            const T* scales = mem.scales + i * kParts * h;
            sum_gates(4 * h, scales, mem.products + i * 4 * h, sums(i, lines.position(i, t)) + 4 * m,
                      line<T>(data[kBias], 0, 4 * h), mem.gate_sums);
            CellForward<T>{mem.gate_sums,
                           nullptr,
                           line_or_null<T>(data[kGates], token, 4 * h),
                           mem.cell + i * h,
                           line_or_null<T>(data[kCells], token, h),
                           mem.state + i * state_width + m,
                           line<T>(data[kOutputs], lines.padded(i, t), h)}
                .run(h);
            if (keep) {
              copy(line<T>(data[kZVectors], token, kParts * z), mem.zs + i * kParts * z, kParts * z);
              copy(line<T>(data[kScaleValues], token, 8 * h), scales, 8 * h);
            }
          }
        },
        [&](int64_t i) {
          const int64_t row = lines.row(i);
          copy(line<T>(data[kFinalHidden], row, h), mem.state + i * state_width + m, h);
          copy(line<T>(data[kFinalCell], row, h), mem.cell + i * h, h);
          copy(line<T>(data[kFinalHyperHidden], row, m), mem.state + i * state_width, m);
          copy(line<T>(data[kFinalHyperCell], row, m), mem.hyper_cell + i * m, m);
        });
  }

 private:
  // All four gates at once; n = 4h. `scales` holds D_h z_h, D_x z_x and D_b z_b.
  static void sum_gates(int64_t n, const T* scales, const T* products, const T* from_input, const T* bias, T* sums) {
    for_vectors<T>(n, [&](int64_t j, auto lanes) {
      const Vector<T> by_hidden = load(scales + j, lanes) * load(products + j, lanes);
      const Vector<T> by_input = load(scales + n + j, lanes) * load(from_input + j, lanes);
      store(sums + j, by_hidden + by_input + load(scales + 2 * n + j, lanes) + load(bias + j, lanes), lanes);
    });
  }
};

template <typename T>
struct HyperLstmBackward {
  enum { kNumSizes = 4, kNumWeights = kHyperNumWeights };
  enum Data {
    kGradOutputs,  // padded (h); this and the next four may be null
    kGradFinalHidden,
    kGradFinalCell,
    kGradFinalHyperHidden,
    kGradFinalHyperCell,
    kInputs,  // padded (d)
    kFirstHidden,
    kFirstCell,
    kFirstHyperHidden,
    kFirstHyperCell,
    kOutputs,
    kSums,
    kGates,
    kCells,
    kHyperHidden,
    kHyperCells,
    kProducts,
    kZVectors,
    kScaleValues,  // as the forward pass kept them
    kGradInputs,   // padded (d), written; all gradients may be null, which asks for nothing
    kGradFirstHidden,
    kGradFirstCell,
    kGradFirstHyperHidden,
    kGradFirstHyperCell,
    kFirstSum,
    kGradHyperInput = kFirstSum,
    kGradHyperHyper,
    kGradHyperHidden,
    kGradHyperBias,
    kGradZWeights,
    kGradZBias,
    kGradScaleWeights,
    kGradMainInput,
    kGradMainHidden,
    kGradBias,
    kNumData
  };
  static int64_t sum_size(const int64_t* sizes, int index) {
    const HyperLstmSizes s(sizes);
    switch (index) {
      case kGradHyperInput: return 4 * s.m * s.d;
      case kGradHyperHyper: return 4 * s.m * s.m;
      case kGradHyperHidden: return 4 * s.m * s.h;
      case kGradHyperBias: return 4 * s.m;
      case kGradZWeights: return kParts * s.z * s.m;
      case kGradZBias: return kParts * s.z;
      case kGradScaleWeights: return kParts * s.h * s.z;
      case kGradMainInput: return 4 * s.h * s.d;
      case kGradMainHidden: return 4 * s.h * s.h;
      default: return 4 * s.h;  // b_0
    }
  }

  struct Weights {
    Packed<T> input, hyper, main, zs, scales[kParts];
    int64_t size;

    Weights(const int64_t* sizes, const void* packed) {
      const HyperLstmSizes s(sizes);
      PackedPlaces<T> places(packed);
      input = places.take(4 * s.m + 4 * s.h, s.d);
      hyper = places.take(4 * s.m, s.m + s.h);
      main = places.take(4 * s.h, s.h);
      zs = places.take(kParts * s.z, s.m);
      for (Packed<T>& scale : scales) scale = places.take(s.h, s.z);
      size = places.used();
    }
  };
  static void pack(const int64_t* sizes, const void* const* weights, Weights& w) {
    const HyperLstmSizes s(sizes);
    const auto source = [&](int index) { return static_cast<const T*>(weights[index]); };
    w.input.put(0, 4 * s.m, 0, s.d, source(kHyperInputWeight), s.d);
    w.input.put(4 * s.m, 4 * s.h, 0, s.d, source(kMainInputWeight), s.d);
    w.hyper.put(0, 4 * s.m, 0, s.m, source(kHyperHyperWeight), s.m);
    w.hyper.put(0, 4 * s.m, s.m, s.h, source(kHyperHiddenWeight), s.h);
    w.main.put(0, 4 * s.h, 0, s.h, source(kMainHiddenWeight), s.h);
    w.zs.put(0, kParts * s.z, 0, s.m, source(kZWeights), s.m);
    for (int part = 0; part < kParts; ++part)
      w.scales[part].put(0, s.h, 0, s.z, source(kScaleWeights) + part * s.h * s.z, s.z);
  }
  static int64_t work(const int64_t* sizes) { return 2 * hyper_lstm_work(sizes); }

  struct Memory {
    T *d_state, *d_cell, *d_hyper_cell, *d_step_gates, *d_step_scales, *d_step_products, *d_step_zs, *d_hyper_hidden;
    T *d_step_hyper, *d_sums, *d_scales, *d_products, *d_zs, *outer;

    Memory(const int64_t* sizes, int64_t rows, int64_t tokens, Scratch& scratch) {
      const HyperLstmSizes s(sizes);
      d_state = scratch.take<T>(rows * (s.m + s.h));
      d_cell = scratch.take<T>(rows * s.h);
      d_hyper_cell = scratch.take<T>(rows * s.m);
      d_step_gates = scratch.take<T>(4 * s.h);
      d_step_scales = scratch.take<T>(rows * kParts * s.h);
      d_step_products = scratch.take<T>(rows * 4 * s.h);
      d_step_zs = scratch.take<T>(rows * kParts * s.z);
      d_hyper_hidden = scratch.take<T>(rows * s.m);
      d_step_hyper = scratch.take<T>(rows * 4 * s.m);
      // Of every token, for the weights' gradients:
      d_sums = scratch.take<T>(tokens * (4 * s.m + 4 * s.h));
      d_scales = scratch.take<T>(tokens * kParts * s.h);
      d_products = scratch.take<T>(tokens * 4 * s.h);
      d_zs = scratch.take<T>(tokens * kParts * s.z);
      const int64_t widest = s.d > s.h ? s.d : s.h, inner = s.m > s.z ? s.m : s.z;
      outer = scratch.take<T>(outer_scratch<T>(widest > inner ? widest : inner));
    }
  };

  static void run(const Arguments& call, const Group& group, void* memory) {
    const HyperLstmSizes s(call.sizes);
    const int64_t d = s.d, h = s.h, m = s.m, z = s.z, width = 4 * m + 4 * h, state_width = m + h;
    void* const* data = call.data;
    const Weights w(call.sizes, call.packed);
    const Lines lines{call.batch, group};
    Scratch scratch(memory);
    const Memory mem(call.sizes, group.count, group.tokens, scratch);
    clear_padding<T>(lines, data[kGradInputs], d);
    walk_backward(
        lines,
        [&](int64_t i) {
          const int64_t row = lines.row(i);
          copy_or_zero(mem.d_state + i * state_width, data[kGradFinalHyperHidden], row, m);
          copy_or_zero(mem.d_state + i * state_width + m, data[kGradFinalHidden], row, h);
          copy_or_zero(mem.d_cell + i * h, data[kGradFinalCell], row, h);
          copy_or_zero(mem.d_hyper_cell + i * m, data[kGradFinalHyperCell], row, m);
        },
        [&](int64_t t, int64_t alive) {
          for (int64_t i = 0; i < alive; ++i) {
            const int64_t token = lines.token(i, t), local = lines.local(i, t);
            CellBackward<T>{
                line<T>(data[kGates], token, 4 * h),
                t ? line<T>(data[kCells], lines.token(i, t - 1), h) : line<T>(data[kFirstCell], lines.row(i), h),
                line<T>(data[kCells], token, h),
                mem.d_state + i * state_width + m,
                line_or_null<T>(data[kGradOutputs], lines.padded(i, t), h),
                mem.d_cell + i * h,
                mem.d_step_gates,
                nullptr}
                .run(h);
            differentiate_gates(4 * h, mem.d_step_gates, line<T>(data[kScaleValues], token, 8 * h),
                                line<T>(data[kProducts], token, 4 * h), line<T>(data[kSums], token, width) + 4 * m,
                                mem.d_step_scales + i * kParts * h, mem.d_scales + local * kParts * h,
                                mem.d_step_products + i * 4 * h, mem.d_products + local * 4 * h,
                                mem.d_sums + local * width + 4 * m);
          }
          for (int part = 0; part < kParts; ++part)
            multiply(alive, mem.d_step_scales + part * h, kParts * h, w.scales[part], mem.d_step_zs + part * z,
                     kParts * z);
          multiply(alive, mem.d_step_zs, kParts * z, w.zs, mem.d_hyper_hidden, m);
          for (int64_t i = 0; i < alive; ++i) {
            const int64_t token = lines.token(i, t), local = lines.local(i, t);
            copy(mem.d_zs + local * kParts * z, mem.d_step_zs + i * kParts * z, kParts * z);
            CellBackward<T>{line<T>(data[kSums], token, width),
                            t ? line<T>(data[kHyperCells], lines.token(i, t - 1), m)
                              : line<T>(data[kFirstHyperCell], lines.row(i), m),
                            line<T>(data[kHyperCells], token, m),
                            mem.d_hyper_hidden + i * m,
                            mem.d_state + i * state_width,
                            mem.d_hyper_cell + i * m,
                            mem.d_step_hyper + i * 4 * m,
                            mem.d_sums + local * width}
                .run(m);
          }
          multiply(alive, mem.d_step_hyper, 4 * m, w.hyper, mem.d_state, state_width);
          multiply_add(alive, mem.d_step_products, 4 * h, w.main, mem.d_state + m, state_width);
        });
    for (int64_t i = 0; i < group.count; ++i) {
      const int64_t row = lines.row(i);
      const auto give = [&](int index, const T* gradient, int64_t n) {
        if (data[index]) copy(line<T>(data[index], row, n), gradient, n);
      };
      give(kGradFirstHyperHidden, mem.d_state + i * state_width, m);
      give(kGradFirstHidden, mem.d_state + i * state_width + m, h);
      give(kGradFirstCell, mem.d_cell + i * h, h);
      give(kGradFirstHyperCell, mem.d_hyper_cell + i * m, m);
      if (data[kGradInputs])
        multiply(lines.length(i), mem.d_sums + group.starts[i] * width, width, w.input,
                 line<T>(data[kGradInputs], lines.first_padded(i), d), d);
    }
    const LineFinder start(lines);
    const int64_t n = group.tokens;
    const auto sum = [&](int index) { return static_cast<T*>(data[index]); };
    const InGroupOrder<T> inputs{start, lines, data[kInputs], d, false};
    const PreviousInGroupOrder<T> hidden{start, lines, data[kOutputs], data[kFirstHidden], h, false};
    const PreviousInGroupOrder<T> hyper_hidden{start, lines, data[kHyperHidden], data[kFirstHyperHidden], m, true};
    add_outer_products(n, mem.d_sums, width, 4 * m, inputs, d, mem.outer, sum(kGradHyperInput), d);
    add_outer_products(n, mem.d_sums + 4 * m, width, 4 * h, inputs, d, mem.outer, sum(kGradMainInput), d);
    add_outer_products(n, mem.d_sums, width, 4 * m, hyper_hidden, m, mem.outer, sum(kGradHyperHyper), m);
    add_outer_products(n, mem.d_sums, width, 4 * m, hidden, h, mem.outer, sum(kGradHyperHidden), h);
    add_outer_products(n, mem.d_products, 4 * h, 4 * h, hidden, h, mem.outer, sum(kGradMainHidden), h);
    add_outer_products(n, mem.d_zs, kParts * z, kParts * z, InGroupOrder<T>{start, lines, data[kHyperHidden], m, true},
                       m, mem.outer, sum(kGradZWeights), m);
    add_lines(n, mem.d_sums, width, 4 * m, sum(kGradHyperBias));
    add_lines(n, mem.d_zs, kParts * z, kParts * z, sum(kGradZBias));
    add_lines(n, mem.d_scales + 8 * h, kParts * h, 4 * h, sum(kGradBias));
    if (data[kGradScaleWeights])
      for (int part = 0; part < kParts; ++part) {
        InGroupOrder<T> zs{start, lines, data[kZVectors], kParts * z, true};
        add_outer_products(
            n, mem.d_scales + part * h, kParts * h, h, [&](int64_t k) { return zs(k) + part * z; }, z, mem.outer,
            sum(kGradScaleWeights) + part * h * z, z);
      }
  }

 private:
  // All four gates at once; n = 4h. `scales` holds D_h z_h, then D_x z_x.
  static void differentiate_gates(int64_t n, const T* d_gates, const T* scales, const T* products, const T* from_input,
                                  T* d_scales, T* kept_d_scales, T* d_products, T* kept_d_products, T* d_from_input) {
    for_vectors<T>(n, [&](int64_t j, auto lanes) {
      const Vector<T> d_gate = load(d_gates + j, lanes);
      const Vector<T> by_hidden = d_gate * load(products + j, lanes), by_input = d_gate * load(from_input + j, lanes);
      const Vector<T> d_product = d_gate * load(scales + j, lanes);
      store(d_scales + j, by_hidden, lanes);
      store(d_scales + n + j, by_input, lanes);
      store(d_scales + 2 * n + j, d_gate, lanes);
      store(kept_d_scales + j, by_hidden, lanes);
      store(kept_d_scales + n + j, by_input, lanes);
      store(kept_d_scales + 2 * n + j, d_gate, lanes);
      store(d_products + j, d_product, lanes);
      store(kept_d_products + j, d_product, lanes);
      store(d_from_input + j, d_gate * load(scales + n + j, lanes), lanes);
    });
  }
};

}  // namespace
