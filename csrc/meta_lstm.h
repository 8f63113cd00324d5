// Copyright 2026 The hf_metalstm authors.
// Licensed under the Apache License, Version 2.0 (the "License"); see the LICENSE file.
//
// Meta-LSTM: an LSTM over [x_t ; h^_{t-1} ; h_{t-1}] gives z_t = W_z h^_t, and each gate * of the basic LSTM is
// P_* (z_t * (Q_* [x_t ; h_{t-1}])) + B_* z_t, which equals the generated matrix P_* diag(z_t) Q_* applied.

#pragma once

#include "sequence.h"

namespace {

struct MetaLstmSizes {
  int64_t d, h, m, z;
  explicit MetaLstmSizes(const int64_t* sizes) : d(sizes[0]), h(sizes[1]), m(sizes[2]), z(sizes[3]) {}
};

inline int64_t meta_lstm_work(const int64_t* sizes) {
  const MetaLstmSizes s(sizes);
  return 4 * (s.m + s.z) * s.d + 4 * s.m * (s.m + s.h) + 4 * s.z * s.h + s.z * s.m + 8 * s.z * s.h;
}

enum MetaLstmWeight {
  kMetaInputWeight,   // (4m, d)
  kMetaMetaWeight,    // (4m, m)
  kMetaHiddenWeight,  // (4m, h)
  kZWeight,           // (z, m)
  kPWeight,           // (4, h, z)
  kQInputWeight,      // (4, z, d)
  kQHiddenWeight,     // (4, z, h)
  kBWeight,           // (4, h, z)
  kMetaNumWeights
};

template <typename T>
struct MetaLstmForward {
  enum { kNumSizes = 4, kNumWeights = kMetaNumWeights };
  enum Data {
    kInputs,    // padded (d)
    kMetaBias,  // (4m)
    kFirstHidden,
    kFirstCell,  // (rows, h)
    kFirstMetaHidden,
    kFirstMetaCell,  // (rows, m)
    kOutputs,        // padded (h)
    kVectors,        // padded (z)
    kFinalHidden,
    kFinalCell,
    kFinalMetaHidden,
    kFinalMetaCell,
    kSums,   // tokens (4m + 4z): activated meta gates and Q [x ; h]; this and the next null without a backward pass
    kGates,  // tokens (4h), activated
    kCells,  // tokens (h)
    kMetaHidden,  // tokens (m)
    kMetaCells,   // tokens (m)
    kNumData,
    kFirstSum = kNumData
  };
  static int64_t sum_size(const int64_t*, int) { return 0; }

  struct Weights {
    Packed<T> input, meta, q, z, gates[4];
    int64_t size;

    Weights(const int64_t* sizes, const void* packed) {
      const MetaLstmSizes s(sizes);
      PackedPlaces<T> places(packed);
      input = places.take(s.d, 4 * s.m + 4 * s.z);
      meta = places.take(s.m + s.h, 4 * s.m);
      q = places.take(s.h, 4 * s.z);
      z = places.take(s.m, s.z);
      for (Packed<T>& gate : gates) gate = places.take(2 * s.z, s.h);
      size = places.used();
    }
  };
  static void pack(const int64_t* sizes, const void* const* weights, Weights& w) {
    const MetaLstmSizes s(sizes);
    const auto source = [&](int index) { return static_cast<const T*>(weights[index]); };
    w.input.put_transposed(0, s.d, 0, 4 * s.m, source(kMetaInputWeight), s.d);
    w.input.put_transposed(0, s.d, 4 * s.m, 4 * s.z, source(kQInputWeight), s.d);
    w.meta.put_transposed(0, s.m, 0, 4 * s.m, source(kMetaMetaWeight), s.m);
    w.meta.put_transposed(s.m, s.h, 0, 4 * s.m, source(kMetaHiddenWeight), s.h);
    w.q.put_transposed(0, s.h, 0, 4 * s.z, source(kQHiddenWeight), s.h);
    w.z.put_transposed(0, s.m, 0, s.z, source(kZWeight), s.m);
    for (int gate = 0; gate < 4; ++gate) {
      w.gates[gate].put_transposed(0, s.z, 0, s.h, source(kPWeight) + gate * s.h * s.z, s.z);
      w.gates[gate].put_transposed(s.z, s.z, 0, s.h, source(kBWeight) + gate * s.h * s.z, s.z);
    }
  }
  static int64_t work(const int64_t* sizes) { return meta_lstm_work(sizes); }

  struct Memory {
    T *state, *cell, *meta_cell, *meta_sums, *q_sums, *z, *scaled, *gate_sums, *bias, *sums;

    Memory(const int64_t* sizes, int64_t rows, int64_t tokens, Scratch& scratch) {
      const MetaLstmSizes s(sizes);
      state = scratch.take<T>(rows * (s.m + s.h));  // [h^ ; h]
      cell = scratch.take<T>(rows * s.h);
      meta_cell = scratch.take<T>(rows * s.m);
      meta_sums = scratch.take<T>(rows * 4 * s.m);
      q_sums = scratch.take<T>(rows * 4 * s.z);
      z = scratch.take<T>(rows * s.z);
      scaled = scratch.take<T>(rows * 8 * s.z);  // [z * Q [x ; h] ; z] of each gate
      gate_sums = scratch.take<T>(rows * 4 * s.h);
      bias = scratch.take<T>(4 * s.m + 4 * s.z);
      sums = scratch.take<T>(tokens * (4 * s.m + 4 * s.z));
    }
  };

  static void run(const Arguments& call, const Group& group, void* memory) {
    const MetaLstmSizes s(call.sizes);
    const int64_t d = s.d, h = s.h, m = s.m, z = s.z, width = 4 * m + 4 * z, state_width = m + h;
    void* const* data = call.data;
    const Weights w(call.sizes, call.packed);
    const Lines lines{call.batch, group};
    Scratch scratch(memory);
    const Memory mem(call.sizes, group.count, group.tokens, scratch);
    const bool keep = data[kGates] != nullptr;
    copy(mem.bias, line<T>(data[kMetaBias], 0, 4 * m), 4 * m);
    set_zero(mem.bias + 4 * m, 4 * z);
    clear_padding<T>(lines, data[kOutputs], h);
    clear_padding<T>(lines, data[kVectors], z);
    // What is kept for the backward pass takes the place of what it is computed from.
    const auto sums = [&](int64_t i, int64_t position) {
      return keep ? line<T>(data[kSums], lines.first_token(i) + position, width)
                  : mem.sums + (group.starts[i] + position) * width;
    };
    for (int64_t i = 0; i < group.count; ++i) {
      const int64_t row = lines.row(i);
      copy(mem.state + i * state_width, line<T>(data[kFirstMetaHidden], row, m), m);
      copy(mem.state + i * state_width + m, line<T>(data[kFirstHidden], row, h), h);
      copy(mem.cell + i * h, line<T>(data[kFirstCell], row, h), h);
      copy(mem.meta_cell + i * m, line<T>(data[kFirstMetaCell], row, m), m);
      multiply_bias(lines.length(i), line<T>(data[kInputs], lines.first_padded(i), d), d, w.input,
                    static_cast<const T*>(mem.bias), sums(i, 0), width);
    }
    walk_forward(
        lines,
        [&](int64_t t, int64_t alive) {
          multiply(alive, mem.state, state_width, w.meta, mem.meta_sums, 4 * m);
          multiply(alive, mem.state + m, state_width, w.q, mem.q_sums, 4 * z);
          for (int64_t i = 0; i < alive; ++i) {
            const int64_t token = lines.token(i, t);
            T* from_input = sums(i, lines.position(i, t));
            CellForward<T>{mem.meta_sums + i * 4 * m,
                           from_input,
                           keep ? from_input : nullptr,
                           mem.meta_cell + i * m,
                           line_or_null<T>(data[kMetaCells], token, m),
                           mem.state + i * state_width,
                           line_or_null<T>(data[kMetaHidden], token, m)}
                .run(m);
          }
          multiply(alive, mem.state, state_width, w.z, mem.z, z);
          for (int64_t i = 0; i < alive; ++i) {
            T* q = sums(i, lines.position(i, t)) + 4 * m;
            scale(z, mem.z + i * z, mem.q_sums + i * 4 * z, q, keep ? q : nullptr, mem.scaled + i * 8 * z,
                  line<T>(data[kVectors], lines.padded(i, t), z));
          }
          for (int gate = 0; gate < 4; ++gate)
            multiply(alive, mem.scaled + 2 * gate * z, 8 * z, w.gates[gate], mem.gate_sums + gate * h, 4 * h);
          for (int64_t i = 0; i < alive; ++i) {
            const int64_t token = lines.token(i, t);
            CellForward<T>{mem.gate_sums + i * 4 * h,
                           nullptr,
                           line_or_null<T>(data[kGates], token, 4 * h),
                           mem.cell + i * h,
                           line_or_null<T>(data[kCells], token, h),
                           mem.state + i * state_width + m,
                           line<T>(data[kOutputs], lines.padded(i, t), h)}
                .run(h);
          }
        },
        [&](int64_t i) {
          const int64_t row = lines.row(i);
          copy(line<T>(data[kFinalHidden], row, h), mem.state + i * state_width + m, h);
          copy(line<T>(data[kFinalCell], row, h), mem.cell + i * h, h);
          copy(line<T>(data[kFinalMetaHidden], row, m), mem.state + i * state_width, m);
          copy(line<T>(data[kFinalMetaCell], row, m), mem.meta_cell + i * m, m);
        });
  }

 private:
  // z * Q [x ; h] and z of each gate, from the products of Q with x and with h; keeps their sum if wanted, and z.
  static void scale(int64_t z, const T* vector, const T* from_hidden, const T* from_input, T* kept, T* scaled,
                    T* kept_vector) {
    for_vectors<T>(z, [&](int64_t j, auto lanes) {
      const Vector<T> z_t = load(vector + j, lanes);
      store(kept_vector + j, z_t, lanes);
      for (int gate = 0; gate < 4; ++gate) {
        const Vector<T> q = load(from_input + gate * z + j, lanes) + load(from_hidden + gate * z + j, lanes);
        if (kept) store(kept + gate * z + j, q, lanes);
        store(scaled + 2 * gate * z + j, q * z_t, lanes);
        store(scaled + 2 * gate * z + z + j, z_t, lanes);
      }
    });
  }
};

template <typename T>
struct MetaLstmBackward {
  enum { kNumSizes = 4, kNumWeights = kMetaNumWeights };
  enum Data {
    kGradOutputs,  // padded (h); this and the next five may be null
    kGradVectors,  // padded (z)
    kGradFinalHidden,
    kGradFinalCell,
    kGradFinalMetaHidden,
    kGradFinalMetaCell,
    kInputs,  // padded (d)
    kFirstHidden,
    kFirstCell,
    kFirstMetaHidden,
    kFirstMetaCell,
    kOutputs,
    kVectors,
    kSums,
    kGates,
    kCells,
    kMetaHidden,
    kMetaCells,   // as the forward pass kept them
    kGradInputs,  // padded (d), written; all gradients may be null, which asks for nothing
    kGradFirstHidden,
    kGradFirstCell,
    kGradFirstMetaHidden,
    kGradFirstMetaCell,
    kFirstSum,
    kGradMetaInput = kFirstSum,
    kGradMetaMeta,
    kGradMetaHidden,
    kGradMetaBias,
    kGradZWeight,
    kGradP,
    kGradQInput,
    kGradQHidden,
    kGradB,
    kNumData
  };
  static int64_t sum_size(const int64_t* sizes, int index) {
    const MetaLstmSizes s(sizes);
    switch (index) {
      case kGradMetaInput: return 4 * s.m * s.d;
      case kGradMetaMeta: return 4 * s.m * s.m;
      case kGradMetaHidden: return 4 * s.m * s.h;
      case kGradMetaBias: return 4 * s.m;
      case kGradZWeight: return s.z * s.m;
      case kGradQInput: return 4 * s.z * s.d;
      default: return 4 * s.h * s.z;  // P, the hidden part of Q, B
    }
  }

  struct Weights {
    Packed<T> input, meta, q, z, gates[4];
    int64_t size;

    Weights(const int64_t* sizes, const void* packed) {
      const MetaLstmSizes s(sizes);
      PackedPlaces<T> places(packed);
      input = places.take(4 * s.m + 4 * s.z, s.d);
      meta = places.take(4 * s.m, s.m + s.h);
      q = places.take(4 * s.z, s.h);
      z = places.take(s.z, s.m);
      for (Packed<T>& gate : gates) gate = places.take(s.h, 2 * s.z);
      size = places.used();
    }
  };
  static void pack(const int64_t* sizes, const void* const* weights, Weights& w) {
    const MetaLstmSizes s(sizes);
    const auto source = [&](int index) { return static_cast<const T*>(weights[index]); };
    w.input.put(0, 4 * s.m, 0, s.d, source(kMetaInputWeight), s.d);
    w.input.put(4 * s.m, 4 * s.z, 0, s.d, source(kQInputWeight), s.d);
    w.meta.put(0, 4 * s.m, 0, s.m, source(kMetaMetaWeight), s.m);
    w.meta.put(0, 4 * s.m, s.m, s.h, source(kMetaHiddenWeight), s.h);
    w.q.put(0, 4 * s.z, 0, s.h, source(kQHiddenWeight), s.h);
    w.z.put(0, s.z, 0, s.m, source(kZWeight), s.m);
    for (int gate = 0; gate < 4; ++gate) {
      w.gates[gate].put(0, s.h, 0, s.z, source(kPWeight) + gate * s.h * s.z, s.z);
      w.gates[gate].put(0, s.h, s.z, s.z, source(kBWeight) + gate * s.h * s.z, s.z);
    }
  }
  static int64_t work(const int64_t* sizes) { return 2 * meta_lstm_work(sizes); }

  struct Memory {
    T *d_state, *d_cell, *d_meta_cell, *d_step_gates, *d_scaled, *d_meta_hidden, *d_step_z, *d_step_sums;
    T *d_sums, *d_gates, *scaled, *d_z, *outer;

    Memory(const int64_t* sizes, int64_t rows, int64_t tokens, Scratch& scratch) {
      const MetaLstmSizes s(sizes);
      d_state = scratch.take<T>(rows * (s.m + s.h));
      d_cell = scratch.take<T>(rows * s.h);
      d_meta_cell = scratch.take<T>(rows * s.m);
      d_step_gates = scratch.take<T>(rows * 4 * s.h);
      d_scaled = scratch.take<T>(rows * 8 * s.z);
      d_meta_hidden = scratch.take<T>(rows * s.m);
      d_step_z = scratch.take<T>(rows * s.z);
      d_step_sums = scratch.take<T>(rows * (4 * s.m + 4 * s.z));
      // Of every token, for the weights' gradients:
      d_sums = scratch.take<T>(tokens * (4 * s.m + 4 * s.z));
      d_gates = scratch.take<T>(tokens * 4 * s.h);
      scaled = scratch.take<T>(tokens * 4 * s.z);  // z * Q [x ; h]
      d_z = scratch.take<T>(tokens * s.z);
      const int64_t widest = s.d > s.h ? s.d : s.h, inner = s.m > s.z ? s.m : s.z;
      outer = scratch.take<T>(outer_scratch<T>(widest > inner ? widest : inner));
    }
  };

  static void run(const Arguments& call, const Group& group, void* memory) {
    const MetaLstmSizes s(call.sizes);
    const int64_t d = s.d, h = s.h, m = s.m, z = s.z, width = 4 * m + 4 * z, state_width = m + h;
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
          copy_or_zero(mem.d_state + i * state_width, data[kGradFinalMetaHidden], row, m);
          copy_or_zero(mem.d_state + i * state_width + m, data[kGradFinalHidden], row, h);
          copy_or_zero(mem.d_cell + i * h, data[kGradFinalCell], row, h);
          copy_or_zero(mem.d_meta_cell + i * m, data[kGradFinalMetaCell], row, m);
        },
        [&](int64_t t, int64_t alive) {
          for (int64_t i = 0; i < alive; ++i) {
            const int64_t token = lines.token(i, t);
            CellBackward<T>{
                line<T>(data[kGates], token, 4 * h),
                t ? line<T>(data[kCells], lines.token(i, t - 1), h) : line<T>(data[kFirstCell], lines.row(i), h),
                line<T>(data[kCells], token, h),
                mem.d_state + i * state_width + m,
                line_or_null<T>(data[kGradOutputs], lines.padded(i, t), h),
                mem.d_cell + i * h,
                mem.d_step_gates + i * 4 * h,
                mem.d_gates + lines.local(i, t) * 4 * h}
                .run(h);
          }
          for (int gate = 0; gate < 4; ++gate)
            multiply(alive, mem.d_step_gates + gate * h, 4 * h, w.gates[gate], mem.d_scaled + 2 * gate * z, 8 * z);
          for (int64_t i = 0; i < alive; ++i) {
            const int64_t padded = lines.padded(i, t), local = lines.local(i, t);
            unscale(z, mem.d_scaled + i * 8 * z, line<T>(data[kSums], lines.token(i, t), width) + 4 * m,
                    line<T>(data[kVectors], padded, z), line_or_null<T>(data[kGradVectors], padded, z),
                    mem.d_step_sums + i * width + 4 * m, mem.d_sums + local * width + 4 * m, mem.scaled + local * 4 * z,
                    mem.d_step_z + i * z, mem.d_z + local * z);
          }
          multiply(alive, mem.d_step_z, z, w.z, mem.d_meta_hidden, m);
          for (int64_t i = 0; i < alive; ++i) {
            const int64_t token = lines.token(i, t);
            CellBackward<T>{line<T>(data[kSums], token, width),
                            t ? line<T>(data[kMetaCells], lines.token(i, t - 1), m)
                              : line<T>(data[kFirstMetaCell], lines.row(i), m),
                            line<T>(data[kMetaCells], token, m),
                            mem.d_meta_hidden + i * m,
                            mem.d_state + i * state_width,
                            mem.d_meta_cell + i * m,
                            mem.d_step_sums + i * width,
                            mem.d_sums + lines.local(i, t) * width}
                .run(m);
          }
          multiply(alive, mem.d_step_sums, width, w.meta, mem.d_state, state_width);
          multiply_add(alive, mem.d_step_sums + 4 * m, width, w.q, mem.d_state + m, state_width);
        });
    for (int64_t i = 0; i < group.count; ++i) {
      const int64_t row = lines.row(i);
      const auto give = [&](int index, const T* gradient, int64_t n) {
        if (data[index]) copy(line<T>(data[index], row, n), gradient, n);
      };
      give(kGradFirstMetaHidden, mem.d_state + i * state_width, m);
      give(kGradFirstHidden, mem.d_state + i * state_width + m, h);
      give(kGradFirstCell, mem.d_cell + i * h, h);
      give(kGradFirstMetaCell, mem.d_meta_cell + i * m, m);
      if (data[kGradInputs])
        multiply(lines.length(i), mem.d_sums + group.starts[i] * width, width, w.input,
                 line<T>(data[kGradInputs], lines.first_padded(i), d), d);
    }
    const LineFinder start(lines);
    const auto sum = [&](int index) { return static_cast<T*>(data[index]); };
    const InGroupOrder<T> inputs{start, lines, data[kInputs], d, false};
    const PreviousInGroupOrder<T> hidden{start, lines, data[kOutputs], data[kFirstHidden], h, false};
    const PreviousInGroupOrder<T> meta_hidden{start, lines, data[kMetaHidden], data[kFirstMetaHidden], m, true};
    const T* d_q = mem.d_sums + 4 * m;
    add_outer_products(group.tokens, mem.d_sums, width, 4 * m, inputs, d, mem.outer, sum(kGradMetaInput), d);
    add_outer_products(group.tokens, d_q, width, 4 * z, inputs, d, mem.outer, sum(kGradQInput), d);
    add_outer_products(group.tokens, mem.d_sums, width, 4 * m, meta_hidden, m, mem.outer, sum(kGradMetaMeta), m);
    add_outer_products(group.tokens, mem.d_sums, width, 4 * m, hidden, h, mem.outer, sum(kGradMetaHidden), h);
    add_outer_products(group.tokens, d_q, width, 4 * z, hidden, h, mem.outer, sum(kGradQHidden), h);
    add_lines(group.tokens, mem.d_sums, width, 4 * m, sum(kGradMetaBias));
    add_outer_products(group.tokens, mem.d_z, z, z, InGroupOrder<T>{start, lines, data[kMetaHidden], m, true}, m,
                       mem.outer, sum(kGradZWeight), m);
    add_outer_products(group.tokens, mem.d_gates, 4 * h, 4 * h, InGroupOrder<T>{start, lines, data[kVectors], z, false},
                       z, mem.outer, sum(kGradB), z);
    if (data[kGradP])
      for (int gate = 0; gate < 4; ++gate)
        add_outer_products(
            group.tokens, mem.d_gates + gate * h, 4 * h, h,
            [&](int64_t k) { return mem.scaled + k * 4 * z + gate * z; }, z, mem.outer, sum(kGradP) + gate * h * z, z);
  }

 private:
  // From the gradient of [z * Q [x ; h] ; z] of each gate to those of Q [x ; h] and of z.
  static void unscale(int64_t z, const T* d_scaled, const T* q, const T* vector, const T* d_vector, T* d_q, T* kept_d_q,
                      T* scaled, T* d_z, T* kept_d_z) {
    for_vectors<T>(z, [&](int64_t j, auto lanes) {
      const Vector<T> z_t = load(vector + j, lanes);
      Vector<T> total = d_vector ? load(d_vector + j, lanes) : Vector<T>{};
      for (int gate = 0; gate < 4; ++gate) {
        const Vector<T> q_gate = load(q + gate * z + j, lanes);
        const Vector<T> by_q = load(d_scaled + 2 * gate * z + j, lanes);
        total += by_q * q_gate + load(d_scaled + 2 * gate * z + z + j, lanes);
        store(d_q + gate * z + j, by_q * z_t, lanes);
        store(kept_d_q + gate * z + j, by_q * z_t, lanes);
        store(scaled + gate * z + j, q_gate * z_t, lanes);
      }
      store(d_z + j, total, lanes);
      store(kept_d_z + j, total, lanes);
    });
  }
};

}  // namespace
