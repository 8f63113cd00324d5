// Copyright 2026 The hf_metalstm authors.
// Licensed under the Apache License, Version 2.0 (the "License"); see the LICENSE file.
//
// What all kernels share: the walk over the steps of a group of rows, scratch memory, and the LSTM cell of one row.

#pragma once

#include <cstdint>

#include "activations.h"
#include "kernels.h"
#include "matrix.h"

namespace {

using hf_metalstm::Arguments;
using hf_metalstm::Batch;
using hf_metalstm::Group;

constexpr int64_t kAlignment = 64;

// Hands out pieces of scratch memory, each on a cache line; with no memory behind it, only adds up their size. Where
// the address sanitizer watches, what lies between the pieces is out of bounds.
class Scratch {
 public:
  explicit Scratch(void* memory) : memory_(static_cast<char*>(memory)), used_(0) {}

  template <typename T>
  T* take(int64_t n) {
    char* piece = memory_ + used_;
    const int64_t bytes = n * int64_t(sizeof(T));
    const int64_t room = (bytes + kAlignment - 1) / kAlignment * kAlignment + hf_metalstm::kRedZone;
    used_ += room;
    if (memory_) hf_metalstm::forbid(piece + bytes, room - bytes);
    return reinterpret_cast<T*>(piece);
  }

  int64_t used() const { return used_; }

 private:
  char* memory_;
  int64_t used_;
};

template <typename T>
inline T* line(void* data, int64_t index, int64_t width) {
  return static_cast<T*>(data) + index * width;
}

// Where the i-th row of a group has its t-th step.
struct Lines {
  const Batch& batch;
  const Group& group;

  int64_t row(int64_t i) const { return group.rows[i]; }
  int64_t length(int64_t i) const { return batch.lengths[row(i)]; }
  int64_t position(int64_t i, int64_t t) const { return batch.reverse ? length(i) - 1 - t : t; }
  int64_t token(int64_t i, int64_t t) const { return batch.starts[row(i)] + position(i, t); }
  int64_t padded(int64_t i, int64_t t) const { return row(i) * batch.steps + position(i, t); }
  int64_t local(int64_t i, int64_t t) const { return group.starts[i] + position(i, t); }

  // The same for all of a row's steps, first to last.
  int64_t first_padded(int64_t i) const { return row(i) * batch.steps; }
  int64_t first_token(int64_t i) const { return batch.starts[row(i)]; }
};

// Goes through the lines of a group's buffer in order: of(k) is the line's row in the group and position in that row.
// Calls must come with growing k.
class LineFinder {
 public:
  explicit LineFinder(const Lines& lines) : lines_(lines), i_(0) {}

  struct Place {
    int64_t i, position;
  };
  Place of(int64_t k) {
    // A new pass over the same lines starts again from the first.
    if (k < lines_.group.starts[i_]) i_ = 0;
    while (i_ + 1 < lines_.group.count && k >= lines_.group.starts[i_ + 1]) ++i_;
    return {i_, k - lines_.group.starts[i_]};
  }

 private:
  const Lines& lines_;
  int64_t i_;
};

// Lines of a padded (or, with `tokens`, token-wise) buffer in the order of the group's own lines.
template <typename T>
struct InGroupOrder {
  LineFinder finder;
  const Lines& lines;
  void* data;
  int64_t width;
  bool tokens;

  const T* operator()(int64_t k) {
    const auto place = finder.of(k);
    const int64_t first = tokens ? lines.first_token(place.i) : lines.first_padded(place.i);
    return line<T>(data, first + place.position, width);
  }
};

// The same one step earlier: the state that a step started from, which for the first step of a row is its initial
// state.
template <typename T>
struct PreviousInGroupOrder {
  LineFinder finder;
  const Lines& lines;
  void* data;
  void* first_states;
  int64_t width;
  bool tokens;

  const T* operator()(int64_t k) {
    const auto place = finder.of(k);
    const bool reverse = lines.batch.reverse;
    if (place.position == (reverse ? lines.length(place.i) - 1 : 0))
      return line<T>(first_states, lines.row(place.i), width);
    const int64_t first = tokens ? lines.first_token(place.i) : lines.first_padded(place.i);
    return line<T>(data, first + place.position + (reverse ? 1 : -1), width);
  }
};

// step(t, alive): rows 0..alive-1 have a t-th step. finish(i): row i has just had its last one.
template <typename Step, typename Finish>
inline void walk_forward(const Lines& lines, Step step, Finish finish) {
  int64_t alive = lines.group.count;
  for (int64_t t = 0; alive > 0; ++t) {
    step(t, alive);
    for (; alive > 0 && lines.length(alive - 1) == t + 1; --alive) finish(alive - 1);
  }
}

// The other way round. begin(i): row i enters with its last step.
template <typename Begin, typename Step>
inline void walk_backward(const Lines& lines, Begin begin, Step step) {
  int64_t alive = 0;
  for (int64_t t = lines.length(0) - 1; t >= 0; --t) {
    for (; alive < lines.group.count && lines.length(alive) == t + 1; ++alive) begin(alive);
    step(t, alive);
  }
}

// A line that may be missing counts as zeros.
template <typename T>
inline void copy_or_zero(T* target, void* data, int64_t index, int64_t n) {
  if (data)
    copy(target, line<T>(data, index, n), n);
  else
    set_zero(target, n);
}

// Zeros in a padded buffer beyond each row's length; nothing where the buffer is missing.
template <typename T>
inline void clear_padding(const Lines& lines, void* data, int64_t width) {
  if (!data) return;
  for (int64_t i = 0; i < lines.group.count; ++i)
    set_zero(line<T>(data, lines.first_padded(i) + lines.length(i), width),
             (lines.batch.steps - lines.length(i)) * width);
}

// Null stays null: there is nothing to read or to keep.
template <typename T>
inline T* line_or_null(void* data, int64_t index, int64_t width) {
  return data ? line<T>(data, index, width) : nullptr;
}

// The places of a call's packed matrices, one after the other.
template <typename T>
class PackedPlaces {
 public:
  explicit PackedPlaces(const void* packed) : first_(static_cast<T*>(const_cast<void*>(packed))), used_(0) {}

  Packed<T> take(int64_t inner, int64_t columns) {
    Packed<T> matrix{inner, columns, first_ + used_};
    used_ += Packed<T>::size(inner, columns);
    return matrix;
  }
  int64_t used() const { return used_; }

 private:
  T* first_;
  int64_t used_;
};

// The LSTM cell of one row. Gates lie n apart: input, forget, candidate, output.
template <typename T>
struct CellForward {
  const T* sums;
  const T* from_input;  // added to them; or null
  T* gates;             // receives the activated gates; or null
  T* cell;              // updated
  T* kept_cell;         // receives the new cell; or null
  T* hidden;
  T* output;  // both receive h_t; or null

  inline void run(int64_t n) const {
    for_vectors<T>(n, [&](int64_t j, auto lanes) {
      Vector<T> i = load(sums + j, lanes), f = load(sums + n + j, lanes);
      Vector<T> g = load(sums + 2 * n + j, lanes), o = load(sums + 3 * n + j, lanes);
      if (from_input) {
        i += load(from_input + j, lanes);
        f += load(from_input + n + j, lanes);
        g += load(from_input + 2 * n + j, lanes);
        o += load(from_input + 3 * n + j, lanes);
      }
      i = sigmoid(i);
      f = sigmoid(f);
      g = hyperbolic_tangent(g);
      o = sigmoid(o);
      const Vector<T> c = g * i + load(cell + j, lanes) * f;
      const Vector<T> h = o * hyperbolic_tangent(c);
      if (gates) {
        store(gates + j, i, lanes);
        store(gates + n + j, f, lanes);
        store(gates + 2 * n + j, g, lanes);
        store(gates + 3 * n + j, o, lanes);
      }
      store(cell + j, c, lanes);
      if (kept_cell) store(kept_cell + j, c, lanes);
      store(hidden + j, h, lanes);
      if (output) store(output + j, h, lanes);
    });
  }
};

// Its gradient: from d hidden to d sums.
template <typename T>
struct CellBackward {
  const T* gates;
  const T* cell_before;
  const T* cell;
  const T* d_hidden;
  const T* more_d_hidden;  // added to it; or null
  T* d_cell;               // becomes the gradient of the cell one step earlier
  T* d_sums;
  T* kept_d_sums;  // receives the same; or null

  inline void run(int64_t n) const {
    for_vectors<T>(n, [&](int64_t j, auto lanes) {
      const Vector<T> i = load(gates + j, lanes), f = load(gates + n + j, lanes);
      const Vector<T> g = load(gates + 2 * n + j, lanes), o = load(gates + 3 * n + j, lanes);
      const Vector<T> tanh_c = hyperbolic_tangent(load(cell + j, lanes));
      Vector<T> dh = load(d_hidden + j, lanes);
      if (more_d_hidden) dh += load(more_d_hidden + j, lanes);
      const Vector<T> dc = load(d_cell + j, lanes) + dh * o * (1 - tanh_c * tanh_c);
      const Vector<T> d_i = dc * g * i * (1 - i);
      const Vector<T> d_f = dc * load(cell_before + j, lanes) * f * (1 - f);
      const Vector<T> d_g = dc * i * (1 - g * g);
      const Vector<T> d_o = dh * tanh_c * o * (1 - o);
      store(d_sums + j, d_i, lanes);
      store(d_sums + n + j, d_f, lanes);
      store(d_sums + 2 * n + j, d_g, lanes);
      store(d_sums + 3 * n + j, d_o, lanes);
      if (kept_d_sums) {
        store(kept_d_sums + j, d_i, lanes);
        store(kept_d_sums + n + j, d_f, lanes);
        store(kept_d_sums + 2 * n + j, d_g, lanes);
        store(kept_d_sums + 3 * n + j, d_o, lanes);
      }
      store(d_cell + j, dc * f, lanes);
    });
  }
};

}  // namespace
