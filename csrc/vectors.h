// Copyright 2026 The hf_metalstm authors.
// Licensed under the Apache License, Version 2.0 (the "License"); see the LICENSE file.
//
// Vector registers of the instruction set that the file is compiled for, and loops over lines of any length: whole
// vectors first, then one partial vector, whose missing lanes are neither read nor written.

#pragma once

#include <cstdint>
#include <cstring>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "kernels.h"

namespace {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif

// A register's worth of numbers, at any address.
template <typename T>
struct VectorOf;
template <>
struct VectorOf<float> {
  typedef float type __attribute__((vector_size(kVectorBytes), aligned(4), may_alias));
  typedef int32_t integers __attribute__((vector_size(kVectorBytes), aligned(4), may_alias));
};
template <>
struct VectorOf<double> {
  typedef double type __attribute__((vector_size(kVectorBytes), aligned(8), may_alias));
  typedef int64_t integers __attribute__((vector_size(kVectorBytes), aligned(8), may_alias));
};
template <typename T>
using Vector = typename VectorOf<T>::type;
template <typename T>
using Integers = typename VectorOf<T>::integers;
template <typename T>
constexpr int kLanes = kVectorBytes / int(sizeof(T));

template <typename T>
inline int64_t whole_vectors(int64_t n) {
  return (n + kLanes<T> - 1) / kLanes<T> * kLanes<T>;
}

struct Whole {};
struct Part {
  int lanes;
};

template <typename T>
inline Vector<T> load(const T* from, Whole) {
  return *reinterpret_cast<const Vector<T>*>(from);
}
template <typename T>
inline void store(T* to, Vector<T> values, Whole) {
  *reinterpret_cast<Vector<T>*>(to) = values;
}

// The sanitizer does not see what masked instructions touch, so it gets the plain way.
#if defined(__AVX512F__) && !defined(HF_METALSTM_ASAN)
inline Vector<float> load(const float* from, Part part) {
  return Vector<float>(_mm512_maskz_loadu_ps(__mmask16((1u << part.lanes) - 1), from));
}
inline Vector<double> load(const double* from, Part part) {
  return Vector<double>(_mm512_maskz_loadu_pd(__mmask8((1u << part.lanes) - 1), from));
}
inline void store(float* to, Vector<float> values, Part part) {
  _mm512_mask_storeu_ps(to, __mmask16((1u << part.lanes) - 1), __m512(values));
}
inline void store(double* to, Vector<double> values, Part part) {
  _mm512_mask_storeu_pd(to, __mmask8((1u << part.lanes) - 1), __m512d(values));
}
#elif defined(__AVX2__) && !defined(HF_METALSTM_ASAN)
inline __m256i mask_of(const float*, Part part) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(part.lanes), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
inline __m256i mask_of(const double*, Part part) {
  return _mm256_cmpgt_epi64(_mm256_set1_epi64x(part.lanes), _mm256_setr_epi64x(0, 1, 2, 3));
}
inline Vector<float> load(const float* from, Part part) {
  return Vector<float>(_mm256_maskload_ps(from, mask_of(from, part)));
}
inline Vector<double> load(const double* from, Part part) {
  return Vector<double>(_mm256_maskload_pd(from, mask_of(from, part)));
}
inline void store(float* to, Vector<float> values, Part part) {
  _mm256_maskstore_ps(to, mask_of(to, part), __m256(values));
}
inline void store(double* to, Vector<double> values, Part part) {
  _mm256_maskstore_pd(to, mask_of(to, part), __m256d(values));
}
#else
template <typename T>
inline Vector<T> load(const T* from, Part part) {
  Vector<T> values = {};
  memcpy(&values, from, sizeof(T) * part.lanes);
  return values;
}
template <typename T>
inline void store(T* to, Vector<T> values, Part part) {
  memcpy(to, &values, sizeof(T) * part.lanes);
}
#endif

// body(j, lanes) for j in steps of a vector: loads and stores in it take `lanes`.
template <typename T, typename Body>
inline __attribute__((always_inline)) void for_vectors(int64_t n, Body body) {
  int64_t j = 0;
  for (; j + kLanes<T> <= n; j += kLanes<T>) body(j, Whole{});
  if (j < n) body(j, Part{int(n - j)});
}

template <typename T>
inline void copy(T* target, const T* source, int64_t n) {
  for_vectors<T>(n, [&](int64_t j, auto lanes) { store(target + j, load(source + j, lanes), lanes); });
}

template <typename T>
inline void set_zero(T* target, int64_t n) {
  for_vectors<T>(n, [&](int64_t j, auto lanes) { store(target + j, Vector<T>{}, lanes); });
}

template <typename T>
inline T sum(Vector<T> values) {
  T total = values[0];
  for (int lane = 1; lane < kLanes<T>; ++lane) total += values[lane];
  return total;
}

}  // namespace
