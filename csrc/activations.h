// Copyright 2026 The hf_metalstm authors.
// Licensed under the Apache License, Version 2.0 (the "License"); see the LICENSE file.
//
// Sigmoid and tanh of vectors. Both come from exp(x) - 1 = 2^k (exp(r) - 1) + (2^k - 1) with x = k ln 2 + r and
// |r| <= ln 2 / 2, which keeps tanh exact near zero. Errors are a few units in the last place; NaN stays NaN.

#pragma once

#include "vectors.h"

namespace {

// The polynomials are the series of exp(r) - 1 up to the term that no longer counts.
inline Vector<float> exp_minus_one(Vector<float> x) {
  const Vector<float> most = Vector<float>{} + 87.0f;
  x = x > most ? most : x;
  x = x < -most ? -most : x;
  const float magic = 12582912.0f;  // 1.5 * 2^23: adding it leaves round(x) in the low bits
  const Vector<float> shifted = x * 1.44269504f + magic;
  const Vector<float> k = shifted - magic;
  Vector<float> r = x - k * 0.693359375f;
  r = r + k * 2.12194440e-4f;
  Vector<float> p = r * (1.0f / 5040.0f) + 1.0f / 720.0f;
  p = p * r + 1.0f / 120.0f;
  p = p * r + 1.0f / 24.0f;
  p = p * r + 1.0f / 6.0f;
  p = p * r + 0.5f;
  p = p * (r * r) + r;
  const Vector<float> scale = Vector<float>((Integers<float>(shifted) << 23) + (127 << 23));
  return scale * p + (scale - 1.0f);
}

inline Vector<double> exp_minus_one(Vector<double> x) {
  const Vector<double> most = Vector<double>{} + 708.0;
  x = x > most ? most : x;
  x = x < -most ? -most : x;
  const double magic = 6755399441055744.0;  // 1.5 * 2^52
  const Vector<double> shifted = x * 1.4426950408889634 + magic;
  const Vector<double> k = shifted - magic;
  Vector<double> r = x - k * 0.693147180369123816490;
  r = r - k * 1.90821492927058770002e-10;
  Vector<double> p = r * (1.0 / 6227020800.0) + 1.0 / 479001600.0;
  p = p * r + 1.0 / 39916800.0;
  p = p * r + 1.0 / 3628800.0;
  p = p * r + 1.0 / 362880.0;
  p = p * r + 1.0 / 40320.0;
  p = p * r + 1.0 / 5040.0;
  p = p * r + 1.0 / 720.0;
  p = p * r + 1.0 / 120.0;
  p = p * r + 1.0 / 24.0;
  p = p * r + 1.0 / 6.0;
  p = p * r + 0.5;
  p = p * (r * r) + r;
  const Vector<double> scale = Vector<double>((Integers<double>(shifted) << 52) + (int64_t(1023) << 52));
  return scale * p + (scale - 1.0);
}

template <typename V>
inline V sigmoid(V x) {
  return 1 / (exp_minus_one(-x) + 2);
}

template <typename V>
inline V hyperbolic_tangent(V x) {
  const V e = exp_minus_one(x + x);
  return e / (e + 2);
}

}  // namespace
