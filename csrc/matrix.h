// Copyright 2026 The hf_metalstm authors.
// Licensed under the Apache License, Version 2.0 (the "License"); see the LICENSE file.
//
// Matrix products of the size that a recurrent op has: some rows of the batch, or some hundreds of tokens, times a
// weight matrix; and sums of outer products over tokens, the weights' gradients.
//
// The right factor is packed in panels of up to three vectors' columns, all of a panel's rows one after the other, so
// that the inner loop reads it in order. A tile of up to kTileRows rows and one panel stays in registers while it runs
// along the inner axis. Packed panels are padded with zeros to whole vectors; results are written exactly.

#pragma once

#include "vectors.h"

namespace {

#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int kTileRows = 8;
#else
constexpr int kTileRows = 4;
#endif
constexpr int kPanelVectors = 3;
// Tokens whose outer products are summed at once: a panel of so many lines stays in the first-level cache.
constexpr int64_t kBlockTokens = 128;

// Width in vectors of the panel that starts with `left` vectors still to place: threes, and no lonely one at the end.
inline int panel_width(int64_t left) { return left == 4 ? 2 : left < kPanelVectors ? int(left) : kPanelVectors; }

// panel(first column, vectors) for each panel of a matrix of so many columns.
template <typename T, typename Function>
inline void for_panels(int64_t columns, Function function) {
  int64_t column = 0;
  for (int64_t left = whole_vectors<T>(columns) / kLanes<T>; left > 0;) {
    const int vectors = panel_width(left);
    function(column, vectors);
    column += vectors * kLanes<T>;
    left -= vectors;
  }
}

// A matrix of `inner` rows and `columns` columns in panels.
template <typename T>
struct Packed {
  int64_t inner, columns;
  T* data;

  static int64_t size(int64_t inner, int64_t columns) { return inner * whole_vectors<T>(columns); }

  // Rows [first_inner, +n_inner), columns [first_column, +n_columns) from `source[column * ld + inner]`: a weight
  // matrix (outputs, inputs) that is applied to its inputs.
  void put_transposed(int64_t first_inner, int64_t n_inner, int64_t first_column, int64_t n_columns, const T* source,
                      int64_t ld) {
    for_columns(first_column, n_columns, [&](T* target, int64_t width, int64_t column, int64_t n) {
      transpose(n, n_inner, source + (column - first_column) * ld, ld, target + first_inner * width, width);
    });
  }

  // The same from `source[inner * ld + column]`: a weight matrix (outputs, inputs) applied to gradients of its outputs.
  void put(int64_t first_inner, int64_t n_inner, int64_t first_column, int64_t n_columns, const T* source, int64_t ld) {
    for_columns(first_column, n_columns, [&](T* target, int64_t width, int64_t column, int64_t n) {
      for (int64_t k = 0; k < n_inner; ++k)
        copy(target + (first_inner + k) * width, source + k * ld + column - first_column, n);
    });
  }

 private:
  // Calls with each run of columns that lies in one panel: its first element, the panel's width, its column, its
  // length.
  template <typename Function>
  void for_columns(int64_t first, int64_t n, Function function) {
    for_panels<T>(columns, [&](int64_t start, int vectors) {
      const int64_t width = vectors * kLanes<T>;
      const int64_t from = first > start ? first : start;
      const int64_t end = first + n < start + width ? first + n : start + width;
      if (from < end) function(data + start * inner + (from - start), width, from, end - from);
    });
  }

  // target[k * width + j] = source[j * ld + k], four columns at a time: their lines are read in order, and four targets
  // side by side are written together.
  static void transpose(int64_t n, int64_t n_inner, const T* source, int64_t ld, T* target, int64_t width) {
    int64_t j = 0;
    for (; j + 4 <= n; j += 4) {
      const T *a = source + j * ld, *b = a + ld, *c = b + ld, *d = c + ld;
      for (int64_t k = 0; k < n_inner; ++k) {
        T* to = target + k * width + j;
        to[0] = a[k];
        to[1] = b[k];
        to[2] = c[k];
        to[3] = d[k];
      }
    }
    for (; j < n; ++j)
      for (int64_t k = 0; k < n_inner; ++k) target[k * width + j] = source[j * ld + k];
  }
};

// c (rows, vectors) = start + a b. a's element of row r and inner index k is a[r * lda + k], or a[k * lda + r] where it
// is given transposed. The start is `start[r * ld_start]`: a bias for every row with ld_start 0, c itself, or null for
// zeros. The last vector of a line of c, and of the start, has the lanes that `last` says.
template <typename T, bool transposed, int rows, int vectors, typename Last>
inline __attribute__((always_inline)) void tile(int64_t inner, const T* a, int64_t lda, const T* b, const T* start,
                                                int64_t ld_start, T* c, int64_t ldc, Last last) {
  Vector<T> sums[rows][vectors];
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r)
#pragma GCC unroll 3
    for (int v = 0; v < vectors; ++v) {
      if (!start)
        sums[r][v] = Vector<T>{};
      else if (v + 1 < vectors)
        sums[r][v] = load(start + r * ld_start + v * kLanes<T>, Whole{});
      else
        sums[r][v] = load(start + r * ld_start + v * kLanes<T>, last);
    }
  for (int64_t k = 0; k < inner; ++k, b += vectors * kLanes<T>) {
    Vector<T> line[vectors];
#pragma GCC unroll 3
    for (int v = 0; v < vectors; ++v) line[v] = load(b + v * kLanes<T>, Whole{});
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r)
#pragma GCC unroll 3
      for (int v = 0; v < vectors; ++v) sums[r][v] += (transposed ? a[k * lda + r] : a[r * lda + k]) * line[v];
  }
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r)
#pragma GCC unroll 3
    for (int v = 0; v < vectors; ++v) {
      if (v + 1 < vectors)
        store(c + r * ldc + v * kLanes<T>, sums[r][v], Whole{});
      else
        store(c + r * ldc + v * kLanes<T>, sums[r][v], last);
    }
}

template <typename T, bool transposed, int vectors, typename Last>
void multiply_panel(int64_t rows, int64_t inner, const T* a, int64_t lda, const T* b, const T* start, int64_t ld_start,
                    T* c, int64_t ldc, Last last) {
  const int64_t step = transposed ? 1 : lda;
  int64_t r = 0;
#define HF_METALSTM_TILE(n)                                                                                    \
  tile<T, transposed, n, vectors>(inner, a + r * step, lda, b, start ? start + r * ld_start : start, ld_start, \
                                  c + r * ldc, ldc, last)
  for (; r + kTileRows <= rows; r += kTileRows) HF_METALSTM_TILE(kTileRows);
  switch (rows - r) {
    case 1: HF_METALSTM_TILE(1); break;
    case 2: HF_METALSTM_TILE(2); break;
    case 3: HF_METALSTM_TILE(3); break;
    case 4: HF_METALSTM_TILE(4 < kTileRows ? 4 : 1); break;
    case 5: HF_METALSTM_TILE(5 < kTileRows ? 5 : 1); break;
    case 6: HF_METALSTM_TILE(6 < kTileRows ? 6 : 1); break;
    case 7: HF_METALSTM_TILE(7 < kTileRows ? 7 : 1); break;
    default: break;
  }
#undef HF_METALSTM_TILE
}

// c (rows, columns) = start + a b with b's panels at `panels`.
template <typename T, bool transposed>
inline void multiply_panels(int64_t rows, int64_t inner, int64_t columns, const T* a, int64_t lda, const T* panels,
                            const T* start, int64_t ld_start, T* c, int64_t ldc) {
  for_panels<T>(columns, [&](int64_t column, int vectors) {
    const T* b = panels + column * inner;
    const T* from = start ? start + column : start;
    const int64_t left = columns - column;
    const auto run = [&](auto last) {
      if (vectors == 3)
        multiply_panel<T, transposed, 3>(rows, inner, a, lda, b, from, ld_start, c + column, ldc, last);
      else if (vectors == 2)
        multiply_panel<T, transposed, 2>(rows, inner, a, lda, b, from, ld_start, c + column, ldc, last);
      else
        multiply_panel<T, transposed, 1>(rows, inner, a, lda, b, from, ld_start, c + column, ldc, last);
    };
    if (left >= vectors * kLanes<T>)
      run(Whole{});
    else
      run(Part{int(left - (vectors - 1) * kLanes<T>)});
  });
}

// c (rows, columns) = a b.
template <typename T>
inline void multiply(int64_t rows, const T* a, int64_t lda, const Packed<T>& b, T* c, int64_t ldc) {
  multiply_panels<T, false>(rows, b.inner, b.columns, a, lda, b.data, static_cast<const T*>(nullptr), 0, c, ldc);
}

// c += a b.
template <typename T>
inline void multiply_add(int64_t rows, const T* a, int64_t lda, const Packed<T>& b, T* c, int64_t ldc) {
  multiply_panels<T, false>(rows, b.inner, b.columns, a, lda, b.data, static_cast<const T*>(c), ldc, c, ldc);
}

// c = bias + a b.
template <typename T>
inline void multiply_bias(int64_t rows, const T* a, int64_t lda, const Packed<T>& b, const T* bias, T* c, int64_t ldc) {
  multiply_panels<T, false>(rows, b.inner, b.columns, a, lda, b.data, bias, 0, c, ldc);
}

// Scratch memory of `add_outer_products`.
template <typename T>
inline int64_t outer_scratch(int64_t columns) {
  return Packed<T>::size(kBlockTokens, columns);
}

// c (rows, columns) += the sum over tokens of the outer products of a's line, (rows) from a[token * lda], and b's line,
// (columns) from line_of(token). A null c asks for nothing.
template <typename T, typename LineOf>
inline void add_outer_products(int64_t tokens, const T* a, int64_t lda, int64_t rows, LineOf line_of, int64_t columns,
                               T* scratch, T* c, int64_t ldc) {
  if (!c) return;
  for (int64_t first = 0; first < tokens; first += kBlockTokens) {
    const int64_t n = tokens - first < kBlockTokens ? tokens - first : kBlockTokens;
    for_panels<T>(columns, [&](int64_t column, int vectors) {
      const int64_t width = vectors * kLanes<T>;
      const int64_t real = columns - column < width ? columns - column : width;
      T* panel = scratch + column * n;
      for (int64_t k = 0; k < n; ++k) {
        copy(panel + k * width, line_of(first + k) + column, real);
        for (int64_t j = real; j < width; ++j) panel[k * width + j] = T(0);
      }
    });
    multiply_panels<T, true>(rows, n, columns, a + first * lda, lda, scratch, static_cast<const T*>(c), ldc, c, ldc);
  }
}

// c (columns) += the sum of all tokens' lines of a.
template <typename T>
inline void add_lines(int64_t tokens, const T* a, int64_t lda, int64_t columns, T* c) {
  if (!c) return;
  for_vectors<T>(columns, [&](int64_t j, auto lanes) {
    Vector<T> total = load(c + j, lanes);
    for (int64_t k = 0; k < tokens; ++k) total += load(a + k * lda + j, lanes);
    store(c + j, total, lanes);
  });
}

}  // namespace
