// Copyright 2026 The hf_metalstm authors.
// Licensed under the Apache License, Version 2.0 (the "License"); see the LICENSE file.
//
// What the kernels of every instruction set offer to module.cpp.
//
// The kernel files are compiled once for each instruction set with flags of their own. They therefore use nothing of
// the C++ library: an inline function of it, compiled for AVX-512, could be the copy that the linker keeps for
// everybody. Memory comes from the caller.

#pragma once

#include <cstdint>

#if defined(__SANITIZE_ADDRESS__)
#define HF_METALSTM_ASAN
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HF_METALSTM_ASAN
#endif
#endif
#ifdef HF_METALSTM_ASAN
#include <sanitizer/asan_interface.h>
#endif

namespace hf_metalstm {

// Memory that must not be touched, which only the address sanitizer can notice.
#ifdef HF_METALSTM_ASAN
constexpr int64_t kRedZone = 64;
inline void forbid(void* memory, int64_t bytes) { __asan_poison_memory_region(memory, static_cast<size_t>(bytes)); }
inline void allow(void* memory, int64_t bytes) { __asan_unpoison_memory_region(memory, static_cast<size_t>(bytes)); }
#else
constexpr int64_t kRedZone = 0;
inline void forbid(void*, int64_t) {}
inline void allow(void*, int64_t) {}
#endif

enum OpIndex {
  kLstmForward,
  kLstmBackward,
  kMetaForward,
  kMetaBackward,
  kGruForward,
  kGruBackward,
  kHyperForward,
  kHyperBackward,
  kNumOps
};

// A padded batch and where its real steps are kept. A buffer "of tokens" has one line for each real step, row after row
// of the batch, each row from its first step to its last; a "padded" buffer has `steps` lines for every row.
struct Batch {
  int64_t rows, steps;
  const int64_t* lengths;  // real steps of each row
  const int64_t* starts;   // first token of each row
  bool reverse;            // read each row from its last real step to the first
};

// Rows that are computed together, longest first. Buffers of the group have one line for each of its tokens.
struct Group {
  const int64_t* rows;
  const int64_t* starts;  // first line of each row in a buffer of the group
  int64_t count, tokens;
};

struct Arguments {
  Batch batch;
  const int64_t* sizes;  // of the op: d, h; d, h, m, z; ...
  void* const* data;     // of the op, in the order that its kernel documents; some may be null
  const void* packed;    // weights, as `pack` wrote them
};

struct Op {
  int num_sizes, num_weights, num_data;
  // Data from this index on are sums over all rows, such as gradients of weights: kernels add to them, from zero on.
  int first_sum;
  int64_t (*sum_bytes)(const int64_t* sizes, int index);
  void (*add)(void* to, const void* from, int64_t bytes);
  int64_t (*packed_bytes)(const int64_t* sizes);
  void (*pack)(const int64_t* sizes, const void* const* weights, void* packed);
  int64_t (*scratch_bytes)(const int64_t* sizes, int64_t rows, int64_t tokens);
  void (*run)(const Arguments& arguments, const Group& group, void* scratch);
  // Multiply-adds of one step of one row: tells how much work a call is.
  int64_t (*work)(const int64_t* sizes);
};

struct InstructionSet {
  const char* name;
  Op of_float[kNumOps];
  Op of_double[kNumOps];
};

extern const InstructionSet kBaseline;
#ifdef HF_METALSTM_X86
extern const InstructionSet kAvx2;
extern const InstructionSet kAvx512;
#endif

}  // namespace hf_metalstm
