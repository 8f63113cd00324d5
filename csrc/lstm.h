// Copyright 2026 The hf_metalstm authors.
// Licensed under the Apache License, Version 2.0 (the "License"); see the LICENSE file.
//
// LSTM: [i f g o] = [s s tanh s](W_x x_t + W_h h_{t-1} + b), c_t = g * i + c_{t-1} * f, h_t = o * tanh(c_t).

#pragma once

#include "sequence.h"

namespace {

struct LstmSizes {
  int64_t d, h;
  explicit LstmSizes(const int64_t* sizes) : d(sizes[0]), h(sizes[1]) {}
};

enum LstmWeight { kLstmInput, kLstmHidden, kLstmNumWeights };  // (4h, d), (4h, h)

inline int64_t lstm_work(const int64_t* sizes) {
  const LstmSizes s(sizes);
  return 4 * s.h * (s.d + s.h);
}

template <typename T>
struct LstmForward {
  enum { kNumSizes = 2, kNumWeights = kLstmNumWeights };
  enum Data {
    kInputs,  // padded (d)
    kBias,    // (4h)
    kFirstHidden,
    kFirstCell,  // (rows, h)
    kOutputs,    // padded (h)
    kFinalHidden,
    kFinalCell,  // (rows, h)
    kGates,      // tokens (4h), activated; this and the next null when there will be no backward pass
    kCells,      // tokens (h)
    kNumData,
    kFirstSum = kNumData
  };
  static int64_t sum_size(const int64_t*, int) { return 0; }

  struct Weights {
    Packed<T> input, hidden;
    int64_t size;

    Weights(const int64_t* sizes, const void* packed) {
      const LstmSizes s(sizes);
      PackedPlaces<T> places(packed);
      input = places.take(s.d, 4 * s.h);
      hidden = places.take(s.h, 4 * s.h);
      size = places.used();
    }
  };
  static void pack(const int64_t* sizes, const void* const* weights, Weights& w) {
    const LstmSizes s(sizes);
    w.input.put_transposed(0, s.d, 0, 4 * s.h, static_cast<const T*>(weights[kLstmInput]), s.d);
    w.hidden.put_transposed(0, s.h, 0, 4 * s.h, static_cast<const T*>(weights[kLstmHidden]), s.h);
  }
  static int64_t work(const int64_t* sizes) { return lstm_work(sizes); }

  struct Memory {
    T *hidden, *cell, *sums, *projected;

    Memory(const int64_t* sizes, int64_t rows, int64_t tokens, Scratch& scratch) {
      const LstmSizes s(sizes);
      hidden = scratch.take<T>(rows * s.h);
      cell = scratch.take<T>(rows * s.h);
      sums = scratch.take<T>(rows * 4 * s.h);
      projected = scratch.take<T>(tokens * 4 * s.h);
    }
  };

  static void run(const Arguments& call, const Group& group, void* memory) {
    const LstmSizes s(call.sizes);
    const int64_t d = s.d, h = s.h;
    void* const* data = call.data;
    const Weights w(call.sizes, call.packed);
    const Lines lines{call.batch, group};
    Scratch scratch(memory);
    const Memory m(call.sizes, group.count, group.tokens, scratch);
    clear_padding<T>(lines, data[kOutputs], h);
    // What is kept for the backward pass takes the place of what it is computed from.
    const auto projected = [&](int64_t i, int64_t position) {
      return data[kGates] ? line<T>(data[kGates], lines.first_token(i) + position, 4 * h)
                          : m.projected + (group.starts[i] + position) * 4 * h;
    };
    for (int64_t i = 0; i < group.count; ++i) {
      const int64_t row = lines.row(i);
      copy(m.hidden + i * h, line<T>(data[kFirstHidden], row, h), h);
      copy(m.cell + i * h, line<T>(data[kFirstCell], row, h), h);
      multiply_bias(lines.length(i), line<T>(data[kInputs], lines.first_padded(i), d), d, w.input,
                    line<T>(data[kBias], 0, 4 * h), projected(i, 0), 4 * h);
    }
    walk_forward(
        lines,
        [&](int64_t t, int64_t alive) {
          multiply(alive, m.hidden, h, w.hidden, m.sums, 4 * h);
          for (int64_t i = 0; i < alive; ++i) {
            const int64_t token = lines.token(i, t);
            CellForward<T>{m.sums + i * 4 * h,
                           projected(i, lines.position(i, t)),
                           line_or_null<T>(data[kGates], token, 4 * h),
                           m.cell + i * h,
                           line_or_null<T>(data[kCells], token, h),
                           m.hidden + i * h,
                           line<T>(data[kOutputs], lines.padded(i, t), h)}
                .run(h);
          }
        },
        [&](int64_t i) {
          copy(line<T>(data[kFinalHidden], lines.row(i), h), m.hidden + i * h, h);
          copy(line<T>(data[kFinalCell], lines.row(i), h), m.cell + i * h, h);
        });
  }
};

template <typename T>
struct LstmBackward {
  enum { kNumSizes = 2, kNumWeights = kLstmNumWeights };
  enum Data {
    kGradOutputs,  // padded (h); this and the next two may be null
    kGradFinalHidden,
    kGradFinalCell,  // (rows, h)
    kInputs,         // padded (d)
    kFirstHidden,
    kFirstCell,  // (rows, h)
    kOutputs,    // padded (h)
    kGates,
    kCells,       // as the forward pass kept them
    kGradInputs,  // padded (d), written; all gradients may be null, which asks for nothing
    kGradFirstHidden,
    kGradFirstCell,  // (rows, h), written
    kFirstSum,
    kGradInputWeight = kFirstSum,
    kGradHiddenWeight,
    kGradBias,
    kNumData
  };
  static int64_t sum_size(const int64_t* sizes, int index) {
    const LstmSizes s(sizes);
    return 4 * s.h * (index == kGradInputWeight ? s.d : index == kGradHiddenWeight ? s.h : 1);
  }

  struct Weights {
    Packed<T> input, hidden;
    int64_t size;

    Weights(const int64_t* sizes, const void* packed) {
      const LstmSizes s(sizes);
      PackedPlaces<T> places(packed);
      input = places.take(4 * s.h, s.d);
      hidden = places.take(4 * s.h, s.h);
      size = places.used();
    }
  };
  static void pack(const int64_t* sizes, const void* const* weights, Weights& w) {
    const LstmSizes s(sizes);
    w.input.put(0, 4 * s.h, 0, s.d, static_cast<const T*>(weights[kLstmInput]), s.d);
    w.hidden.put(0, 4 * s.h, 0, s.h, static_cast<const T*>(weights[kLstmHidden]), s.h);
  }
  static int64_t work(const int64_t* sizes) { return 2 * lstm_work(sizes); }

  struct Memory {
    T *d_hidden, *d_cell, *d_step, *d_sums, *outer;

    Memory(const int64_t* sizes, int64_t rows, int64_t tokens, Scratch& scratch) {
      const LstmSizes s(sizes);
      d_hidden = scratch.take<T>(rows * s.h);
      d_cell = scratch.take<T>(rows * s.h);
      d_step = scratch.take<T>(rows * 4 * s.h);
      d_sums = scratch.take<T>(tokens * 4 * s.h);
      outer = scratch.take<T>(outer_scratch<T>(s.d > s.h ? s.d : s.h));
    }
  };

  static void run(const Arguments& call, const Group& group, void* memory) {
    const LstmSizes s(call.sizes);
    const int64_t d = s.d, h = s.h;
    void* const* data = call.data;
    const Weights w(call.sizes, call.packed);
    const Lines lines{call.batch, group};
    Scratch scratch(memory);
    const Memory m(call.sizes, group.count, group.tokens, scratch);
    clear_padding<T>(lines, data[kGradInputs], d);
    walk_backward(
        lines,
        [&](int64_t i) {
          copy_or_zero(m.d_hidden + i * h, data[kGradFinalHidden], lines.row(i), h);
          copy_or_zero(m.d_cell + i * h, data[kGradFinalCell], lines.row(i), h);
        },
        [&](int64_t t, int64_t alive) {
          for (int64_t i = 0; i < alive; ++i) {
            const int64_t token = lines.token(i, t);
            CellBackward<T>{
                line<T>(data[kGates], token, 4 * h),
                t ? line<T>(data[kCells], lines.token(i, t - 1), h) : line<T>(data[kFirstCell], lines.row(i), h),
                line<T>(data[kCells], token, h),
                m.d_hidden + i * h,
                line_or_null<T>(data[kGradOutputs], lines.padded(i, t), h),
                m.d_cell + i * h,
                m.d_step + i * 4 * h,
                m.d_sums + lines.local(i, t) * 4 * h}
                .run(h);
          }
          multiply(alive, m.d_step, 4 * h, w.hidden, m.d_hidden, h);
        });
    for (int64_t i = 0; i < group.count; ++i) {
      if (data[kGradFirstHidden]) copy(line<T>(data[kGradFirstHidden], lines.row(i), h), m.d_hidden + i * h, h);
      if (data[kGradFirstCell]) copy(line<T>(data[kGradFirstCell], lines.row(i), h), m.d_cell + i * h, h);
      if (data[kGradInputs])
        multiply(lines.length(i), m.d_sums + group.starts[i] * 4 * h, 4 * h, w.input,
                 line<T>(data[kGradInputs], lines.first_padded(i), d), d);
    }
    const LineFinder start(lines);
    add_outer_products(group.tokens, m.d_sums, 4 * h, 4 * h, InGroupOrder<T>{start, lines, data[kInputs], d, false}, d,
                       m.outer, static_cast<T*>(data[kGradInputWeight]), d);
    add_outer_products(group.tokens, m.d_sums, 4 * h, 4 * h,
                       PreviousInGroupOrder<T>{start, lines, data[kOutputs], data[kFirstHidden], h, false}, h, m.outer,
                       static_cast<T*>(data[kGradHiddenWeight]), h);
    add_lines(group.tokens, m.d_sums, 4 * h, 4 * h, static_cast<T*>(data[kGradBias]));
  }
};

}  // namespace
