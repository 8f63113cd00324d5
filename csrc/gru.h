// Copyright 2026 The hf_metalstm authors.
// Licensed under the Apache License, Version 2.0 (the "License"); see the LICENSE file.
//
// GRU: r = s(a_r + u_r), z = s(a_z + u_z), n = tanh(a_n + r * u_n), h' = (1 - z) n + z h, with a = W_x x + b_x and
// u = W_h h + b_h; where an attention gate g is given, h_t = g_t h' + (1 - g_t) h_{t-1}.

#pragma once

#include "sequence.h"

namespace {

// d is 0 where the products with the inputs are given.
struct GruSizes {
  int64_t d, h;
  explicit GruSizes(const int64_t* sizes) : d(sizes[0]), h(sizes[1]) {}
};

enum GruWeight { kGruInput, kGruHidden, kGruNumWeights };  // (3h, d), not read if d is 0; (3h, h)

inline int64_t gru_work(const int64_t* sizes) {
  const GruSizes s(sizes);
  return 3 * s.h * (s.d + s.h);
}

template <typename T>
struct GruForward {
  enum { kNumSizes = 2, kNumWeights = kGruNumWeights };
  enum Data {
    kInputs,       // padded (d); or padded (3h), W_x x + b_x, if d is 0
    kInputBias,    // (3h); null if d is 0
    kHiddenBias,   // (3h)
    kAttention,    // padded (1), or null: every step counts in full
    kFirstHidden,  // (rows, h)
    kOutputs,      // padded (h), or null
    kFinalHidden,  // (rows, h)
    kGates,        // tokens (3h), activated; this and the next null when there will be no backward pass
    kProducts,     // tokens (h): u_n
    kPrevious,     // tokens (h): h_{t-1}
    kNumData,
    kFirstSum = kNumData
  };
  static int64_t sum_size(const int64_t*, int) { return 0; }

  struct Weights {
    Packed<T> input, hidden;
    int64_t size;

    Weights(const int64_t* sizes, const void* packed) {
      const GruSizes s(sizes);
      PackedPlaces<T> places(packed);
      input = places.take(s.d, 3 * s.h);
      hidden = places.take(s.h, 3 * s.h);
      size = places.used();
    }
  };
  static void pack(const int64_t* sizes, const void* const* weights, Weights& w) {
    const GruSizes s(sizes);
    if (s.d) w.input.put_transposed(0, s.d, 0, 3 * s.h, static_cast<const T*>(weights[kGruInput]), s.d);
    w.hidden.put_transposed(0, s.h, 0, 3 * s.h, static_cast<const T*>(weights[kGruHidden]), s.h);
  }
  static int64_t work(const int64_t* sizes) { return gru_work(sizes); }

  struct Memory {
    T *hidden, *sums, *projected;

    Memory(const int64_t* sizes, int64_t rows, int64_t tokens, Scratch& scratch) {
      const GruSizes s(sizes);
      hidden = scratch.take<T>(rows * s.h);
      sums = scratch.take<T>(rows * 3 * s.h);
      projected = scratch.take<T>(s.d ? tokens * 3 * s.h : 0);
    }
  };

  static void run(const Arguments& call, const Group& group, void* memory) {
    const GruSizes s(call.sizes);
    const int64_t d = s.d, h = s.h;
    void* const* data = call.data;
    const Weights w(call.sizes, call.packed);
    const Lines lines{call.batch, group};
    Scratch scratch(memory);
    const Memory m(call.sizes, group.count, group.tokens, scratch);
    const T* bias = line<T>(data[kHiddenBias], 0, 3 * h);
    clear_padding<T>(lines, data[kOutputs], h);
    for (int64_t i = 0; i < group.count; ++i) {
      copy(m.hidden + i * h, line<T>(data[kFirstHidden], lines.row(i), h), h);
      if (d)
        multiply_bias(lines.length(i), line<T>(data[kInputs], lines.first_padded(i), d), d, w.input,
                      line<T>(data[kInputBias], 0, 3 * h), m.projected + group.starts[i] * 3 * h, 3 * h);
    }
    walk_forward(
        lines,
        [&](int64_t t, int64_t alive) {
          multiply_bias(alive, m.hidden, h, w.hidden, bias, m.sums, 3 * h);
          for (int64_t i = 0; i < alive; ++i) {
            const int64_t token = lines.token(i, t), padded = lines.padded(i, t);
            step(h, m.sums + i * 3 * h,
                 d ? m.projected + lines.local(i, t) * 3 * h : line<T>(data[kInputs], padded, 3 * h),
                 data[kAttention] ? *line<T>(data[kAttention], padded, 1) : T(1),
                 line_or_null<T>(data[kGates], token, 3 * h), line_or_null<T>(data[kProducts], token, h),
                 line_or_null<T>(data[kPrevious], token, h), m.hidden + i * h,
                 line_or_null<T>(data[kOutputs], padded, h));
          }
        },
        [&](int64_t i) { copy(line<T>(data[kFinalHidden], lines.row(i), h), m.hidden + i * h, h); });
  }

 private:
  // One row's step; `hidden` is updated. What is kept, and the output, may be null.
  static void step(int64_t h, const T* sums, const T* projected, T attention, T* gates, T* products, T* previous,
                   T* hidden, T* output) {
    for_vectors<T>(h, [&](int64_t j, auto lanes) {
      const Vector<T> product = load(sums + 2 * h + j, lanes);
      const Vector<T> r = sigmoid(load(projected + j, lanes) + load(sums + j, lanes));
      const Vector<T> z = sigmoid(load(projected + h + j, lanes) + load(sums + h + j, lanes));
      const Vector<T> n = hyperbolic_tangent(load(projected + 2 * h + j, lanes) + r * product);
      const Vector<T> before = load(hidden + j, lanes);
      const Vector<T> after = before + attention * (1 - z) * (n - before);
      if (gates) {
        store(gates + j, r, lanes);
        store(gates + h + j, z, lanes);
        store(gates + 2 * h + j, n, lanes);
        store(products + j, product, lanes);
        store(previous + j, before, lanes);
      }
      store(hidden + j, after, lanes);
      if (output) store(output + j, after, lanes);
    });
  }
};

template <typename T>
struct GruBackward {
  enum { kNumSizes = 2, kNumWeights = kGruNumWeights };
  enum Data {
    kGradOutputs,      // padded (h), or null
    kGradFinalHidden,  // (rows, h), or null
    kInputs,           // padded (d); null if d is 0
    kAttention,        // padded (1), or null
    kGates,
    kProducts,
    kPrevious,       // as the forward pass kept them
    kGradInputs,     // padded (d), or padded (3h) if d is 0, written; all gradients may be null, which asks for nothing
    kGradAttention,  // padded (1), written
    kGradFirstHidden,  // (rows, h), written
    kFirstSum,
    kGradInputWeight = kFirstSum,
    kGradHiddenWeight,
    kGradInputBias,
    kGradHiddenBias,
    kNumData
  };
  static int64_t sum_size(const int64_t* sizes, int index) {
    const GruSizes s(sizes);
    return 3 * s.h * (index == kGradInputWeight ? s.d : index == kGradHiddenWeight ? s.h : 1);
  }

  struct Weights {
    Packed<T> input, hidden;
    int64_t size;

    Weights(const int64_t* sizes, const void* packed) {
      const GruSizes s(sizes);
      PackedPlaces<T> places(packed);
      input = places.take(3 * s.h, s.d);
      hidden = places.take(3 * s.h, s.h);
      size = places.used();
    }
  };
  static void pack(const int64_t* sizes, const void* const* weights, Weights& w) {
    const GruSizes s(sizes);
    if (s.d) w.input.put(0, 3 * s.h, 0, s.d, static_cast<const T*>(weights[kGruInput]), s.d);
    w.hidden.put(0, 3 * s.h, 0, s.h, static_cast<const T*>(weights[kGruHidden]), s.h);
  }
  static int64_t work(const int64_t* sizes) { return 2 * gru_work(sizes); }

  struct Memory {
    T *d_hidden, *d_step, *d_sums, *d_candidates, *outer;

    Memory(const int64_t* sizes, int64_t rows, int64_t tokens, Scratch& scratch) {
      const GruSizes s(sizes);
      d_hidden = scratch.take<T>(rows * s.h);
      d_step = scratch.take<T>(rows * 3 * s.h);
      // Of every token: gradients of a_r, a_z and a_n (which are those of u_r and u_z too), and of u_n.
      d_sums = scratch.take<T>(tokens * 3 * s.h);
      d_candidates = scratch.take<T>(tokens * s.h);
      outer = scratch.take<T>(outer_scratch<T>(s.d > s.h ? s.d : s.h));
    }
  };

  static void run(const Arguments& call, const Group& group, void* memory) {
    const GruSizes s(call.sizes);
    const int64_t d = s.d, h = s.h;
    void* const* data = call.data;
    const Weights w(call.sizes, call.packed);
    const Lines lines{call.batch, group};
    Scratch scratch(memory);
    const Memory m(call.sizes, group.count, group.tokens, scratch);
    clear_padding<T>(lines, data[kGradInputs], d ? d : 3 * h);
    clear_padding<T>(lines, data[kGradAttention], 1);
    walk_backward(
        lines, [&](int64_t i) { copy_or_zero(m.d_hidden + i * h, data[kGradFinalHidden], lines.row(i), h); },
        [&](int64_t t, int64_t alive) {
          for (int64_t i = 0; i < alive; ++i) {
            const int64_t token = lines.token(i, t), padded = lines.padded(i, t), local = lines.local(i, t);
            const T d_attention = step(h, line<T>(data[kGates], token, 3 * h), line<T>(data[kProducts], token, h),
                                       line<T>(data[kPrevious], token, h),
                                       data[kAttention] ? *line<T>(data[kAttention], padded, 1) : T(1),
                                       line_or_null<T>(data[kGradOutputs], padded, h), m.d_hidden + i * h,
                                       m.d_step + i * 3 * h, m.d_sums + local * 3 * h, m.d_candidates + local * h);
            if (data[kGradAttention]) *line<T>(data[kGradAttention], padded, 1) = d_attention;
          }
          multiply_add(alive, m.d_step, 3 * h, w.hidden, m.d_hidden, h);
        });
    for (int64_t i = 0; i < group.count; ++i) {
      if (data[kGradFirstHidden]) copy(line<T>(data[kGradFirstHidden], lines.row(i), h), m.d_hidden + i * h, h);
      const T* d_sums = m.d_sums + group.starts[i] * 3 * h;
      if (data[kGradInputs] && d)
        multiply(lines.length(i), d_sums, 3 * h, w.input, line<T>(data[kGradInputs], lines.first_padded(i), d), d);
      if (data[kGradInputs] && !d)
        copy(line<T>(data[kGradInputs], lines.first_padded(i), 3 * h), d_sums, lines.length(i) * 3 * h);
    }
    const LineFinder start(lines);
    const InGroupOrder<T> previous{start, lines, data[kPrevious], h, true};
    const auto sum = [&](int index, int64_t from) {
      return data[index] ? static_cast<T*>(data[index]) + from : static_cast<T*>(nullptr);
    };
    if (d)
      add_outer_products(group.tokens, m.d_sums, 3 * h, 3 * h, InGroupOrder<T>{start, lines, data[kInputs], d, false},
                         d, m.outer, sum(kGradInputWeight, 0), d);
    add_outer_products(group.tokens, m.d_sums, 3 * h, 2 * h, previous, h, m.outer, sum(kGradHiddenWeight, 0), h);
    add_outer_products(group.tokens, m.d_candidates, h, h, previous, h, m.outer, sum(kGradHiddenWeight, 2 * h * h), h);
    add_lines(group.tokens, m.d_sums, 3 * h, 3 * h, sum(kGradInputBias, 0));
    add_lines(group.tokens, m.d_sums, 3 * h, 2 * h, sum(kGradHiddenBias, 0));
    add_lines(group.tokens, m.d_candidates, h, h, sum(kGradHiddenBias, 2 * h));
  }

 private:
  // `d_hidden` becomes what reaches the state before without passing through W_h; `d_step` is the gradient of u.
  // Returns the attention gate's gradient.
  static T step(int64_t h, const T* gates, const T* products, const T* previous, T attention, const T* d_output,
                T* d_hidden, T* d_step, T* d_sums, T* d_candidate) {
    Vector<T> by_attention = {};
    for_vectors<T>(h, [&](int64_t j, auto lanes) {
      const Vector<T> r = load(gates + j, lanes), z = load(gates + h + j, lanes), n = load(gates + 2 * h + j, lanes);
      const Vector<T> before = load(previous + j, lanes);
      Vector<T> dh = load(d_hidden + j, lanes);
      if (d_output) dh += load(d_output + j, lanes);
      by_attention += dh * (1 - z) * (n - before);
      const Vector<T> d_new = dh * attention;
      const Vector<T> d_n = d_new * (1 - z) * (1 - n * n);
      const Vector<T> d_r = d_n * load(products + j, lanes) * r * (1 - r);
      const Vector<T> d_z = d_new * (before - n) * z * (1 - z);
      store(d_step + j, d_r, lanes);
      store(d_sums + j, d_r, lanes);
      store(d_step + h + j, d_z, lanes);
      store(d_sums + h + j, d_z, lanes);
      store(d_step + 2 * h + j, d_n * r, lanes);
      store(d_candidate + j, d_n * r, lanes);
      store(d_sums + 2 * h + j, d_n, lanes);
      store(d_hidden + j, dh - d_new * (1 - z), lanes);
    });
    return sum<T>(by_attention);
  }
};

}  // namespace
