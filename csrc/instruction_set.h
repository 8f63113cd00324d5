// Copyright 2026 The hf_metalstm authors.
// Licensed under the Apache License, Version 2.0 (the "License"); see the LICENSE file.
//
// The table of kernels, for the instruction set that the including file is compiled for.

#pragma once

#include "gru.h"
#include "hyper_lstm.h"
#include "lstm.h"
#include "meta_lstm.h"

namespace {

template <typename T, typename Kernel>
struct Entry {
  static int64_t sum_bytes(const int64_t* sizes, int index) {
    return int64_t(sizeof(T)) * Kernel::sum_size(sizes, index);
  }
  static void add(void* to, const void* from, int64_t bytes) {
    T* target = static_cast<T*>(to);
    const T* source = static_cast<const T*>(from);
    for_vectors<T>(bytes / int64_t(sizeof(T)), [&](int64_t j, auto lanes) {
      store(target + j, load(target + j, lanes) + load(source + j, lanes), lanes);
    });
  }
  static int64_t packed_bytes(const int64_t* sizes) {
    return int64_t(sizeof(T)) * typename Kernel::Weights(sizes, nullptr).size;
  }
  static void pack(const int64_t* sizes, const void* const* weights, void* packed) {
    set_zero(static_cast<T*>(packed), packed_bytes(sizes) / int64_t(sizeof(T)));
    typename Kernel::Weights places(sizes, packed);
    Kernel::pack(sizes, weights, places);
  }
  static int64_t scratch_bytes(const int64_t* sizes, int64_t rows, int64_t tokens) {
    Scratch scratch(nullptr);
    typename Kernel::Memory memory(sizes, rows, tokens, scratch);
    (void)memory;
    return scratch.used();
  }

  static constexpr hf_metalstm::Op op() {
    return {int(Kernel::kNumSizes),
            int(Kernel::kNumWeights),
            int(Kernel::kNumData),
            int(Kernel::kFirstSum),
            &sum_bytes,
            &add,
            &packed_bytes,
            &pack,
            &scratch_bytes,
            &Kernel::run,
            &Kernel::work};
  }
};

}  // namespace

// In the order of OpIndex.
#define HF_METALSTM_OPS(T)                                                                                       \
  {Entry<T, LstmForward<T>>::op(),      Entry<T, LstmBackward<T>>::op(),     Entry<T, MetaLstmForward<T>>::op(), \
   Entry<T, MetaLstmBackward<T>>::op(), Entry<T, GruForward<T>>::op(),       Entry<T, GruBackward<T>>::op(),     \
   Entry<T, HyperLstmForward<T>>::op(), Entry<T, HyperLstmBackward<T>>::op()}

#define HF_METALSTM_INSTRUCTION_SET(variable, name)                                               \
  namespace hf_metalstm {                                                                         \
  extern const InstructionSet variable = {name, HF_METALSTM_OPS(float), HF_METALSTM_OPS(double)}; \
  }
