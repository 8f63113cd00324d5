// Copyright 2026 The hf_metalstm authors.
// Licensed under the Apache License, Version 2.0 (the "License"); see the LICENSE file.
//
// The Python module `hf_metalstm._kernels`: chooses an instruction set, divides a batch between threads and runs
// kernels.
//
// It takes addresses and sizes, never a tensor, so it is built without torch and serves every version of it; and it
// uses the stable ABI of Python only. `hf_metalstm.modeling.recurrent_cpp` is its one caller and answers for what the
// addresses point to.

#define Py_LIMITED_API 0x030A0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "kernels.h"

namespace {

using hf_metalstm::Arguments;
using hf_metalstm::Group;
using hf_metalstm::InstructionSet;
using hf_metalstm::Op;

// More rows at once than this gain nothing, and their scratch memory would leave the cache.
constexpr int64_t kMostRowsOfGroup = 32;
constexpr int64_t kAlignment = 64;

std::vector<const InstructionSet*> supported_sets() {
  std::vector<const InstructionSet*> sets{&hf_metalstm::kBaseline};
#ifdef HF_METALSTM_X86
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) sets.push_back(&hf_metalstm::kAvx2);
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512bw"))
    sets.push_back(&hf_metalstm::kAvx512);
#endif
  return sets;
}

// What one thread computes: groups of rows, each longest first.
struct Share {
  struct Rows {
    std::vector<int64_t> rows, starts;
    int64_t tokens = 0;
  };
  std::vector<Rows> groups;
  int64_t most_rows = 0, most_tokens = 0;
};

// Deals the rows out by length, so that every thread gets its part of the long ones: the next longest always to the
// thread with the fewest steps so far. Which thread gets what depends on the lengths alone, so a result can be had
// again.
std::vector<Share> divide(int64_t rows, const int64_t* lengths, int64_t threads) {
  std::vector<int64_t> order(rows);
  for (int64_t row = 0; row < rows; ++row) order[row] = row;
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return lengths[a] > lengths[b]; });
  std::vector<Share> shares(threads);
  std::vector<int64_t> steps(threads, 0);
  for (int64_t row : order) {
    const auto least = std::min_element(steps.begin(), steps.end()) - steps.begin();
    steps[least] += lengths[row];
    auto& groups = shares[least].groups;
    if (groups.empty() || int64_t(groups.back().rows.size()) == kMostRowsOfGroup) groups.emplace_back();
    Share::Rows& group = groups.back();
    group.rows.push_back(row);
    group.starts.push_back(group.tokens);
    group.tokens += lengths[row];
  }
  for (Share& share : shares)
    for (const Share::Rows& group : share.groups) {
      share.most_rows = std::max(share.most_rows, int64_t(group.rows.size()));
      share.most_tokens = std::max(share.most_tokens, group.tokens);
    }
  return shares;
}

// Scratch memory of the calling thread, kept for its next call: memory fresh from the system costs a page fault for
// every 4096 bytes, a tenth of a call's time. What a very large call needs is given back.
class Arena {
 public:
  char* take(int64_t bytes) {
    if (bytes > size_) {
      memory_.reset();
      size_ = 0;
      memory_.reset(static_cast<char*>(::operator new(size_t(bytes), std::align_val_t(kAlignment))));
      size_ = bytes;
    }
    hf_metalstm::allow(memory_.get(), size_);
    return memory_.get();
  }
  void end_of_call() {
    if (size_ <= kMostKept) return;
    memory_.reset();
    size_ = 0;
  }

 private:
  static constexpr int64_t kMostKept = int64_t(64) << 20;
  struct Free {
    void operator()(char* memory) const { ::operator delete(memory, std::align_val_t(kAlignment)); }
  };
  std::unique_ptr<char, Free> memory_;
  int64_t size_ = 0;
};

int64_t aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// One thread's work and, but for the first thread, its own copy of what is summed over all rows.
struct Worker {
  const Op* op;
  Arguments arguments;
  const Share* share;
  bool own_sums;
  std::vector<void*> data;
  char* scratch = nullptr;

  Worker(const Op& op, const Arguments& arguments, const Share& share, bool own_sums)
      : op(&op),
        arguments(arguments),
        share(&share),
        own_sums(own_sums),
        data(arguments.data, arguments.data + op.num_data) {}

  int64_t scratch_bytes() const {
    return aligned(op->scratch_bytes(arguments.sizes, share->most_rows, share->most_tokens));
  }
  int64_t bytes() const {
    int64_t total = scratch_bytes();
    if (own_sums) for_sums([&](int, int64_t size) { total += aligned(size); });
    return total;
  }
  void place(char* memory) {
    scratch = memory;
    memory += scratch_bytes();
    if (!own_sums) return;
    for_sums([&](int index, int64_t size) {
      data[index] = memory;
      memory += aligned(size);
    });
  }

  // function(index, bytes) for each sum that is asked for.
  template <typename Function>
  void for_sums(Function function) const {
    for (int index = op->first_sum; index < op->num_data; ++index)
      if (arguments.data[index]) function(index, op->sum_bytes(arguments.sizes, index));
  }

  void run() const {
    for_sums([&](int index, int64_t size) { memset(data[index], 0, size_t(size)); });
    Arguments own = arguments;
    own.data = data.data();
    for (const Share::Rows& group : share->groups) {
      hf_metalstm::allow(scratch, scratch_bytes());
      op->run(own, Group{group.rows.data(), group.starts.data(), int64_t(group.rows.size()), group.tokens}, scratch);
    }
  }
};

// A thread is worth starting for `least_work` multiply-adds.
void run_workers(const Op& op, const Arguments& arguments, int64_t tokens, int64_t threads, int64_t least_work) {
  const int64_t work = tokens * op.work(arguments.sizes);
  threads = std::max<int64_t>(1, std::min({threads, arguments.batch.rows, work / std::max<int64_t>(1, least_work)}));
  const std::vector<Share> shares = divide(arguments.batch.rows, arguments.batch.lengths, threads);
  std::vector<Worker> workers;
  workers.reserve(shares.size());
  for (size_t i = 0; i < shares.size(); ++i) workers.emplace_back(op, arguments, shares[i], i > 0);
  static thread_local Arena arena;
  int64_t bytes = 0;
  for (const Worker& worker : workers) bytes += worker.bytes();
  char* memory = arena.take(bytes);
  for (Worker& worker : workers) {
    worker.place(memory);
    memory += worker.bytes();
  }
  // Started for this call alone: nothing is left that a fork could inherit half, or that waits beside other processes.
  std::vector<std::thread> started;
  started.reserve(workers.size());
  size_t mine = 1;  // workers from here on have no thread of their own
  try {
    for (; mine < workers.size(); ++mine) started.emplace_back([&worker = workers[mine]] { worker.run(); });
  } catch (const std::system_error&) {
    // No further thread to be had: this one does the rest.
  }
  workers[0].run();
  for (size_t i = mine; i < workers.size(); ++i) workers[i].run();
  for (std::thread& thread : started) thread.join();
  for (size_t i = 1; i < workers.size(); ++i)
    workers[i].for_sums([&](int index, int64_t size) { op.add(arguments.data[index], workers[i].data[index], size); });
  arena.end_of_call();
}

// Reads a tuple of integers; -1 and a Python error when it is none.
template <typename Value>
int read_integers(PyObject* object, const char* name, Py_ssize_t wanted, std::vector<Value>& values) {
  if (!PyTuple_Check(object) || PyTuple_Size(object) != wanted) {
    PyErr_Format(PyExc_TypeError, "%s must be a tuple of %zd integers", name, wanted);
    return -1;
  }
  values.resize(wanted);
  for (Py_ssize_t i = 0; i < wanted; ++i) {
    const long long value = PyLong_AsLongLong(PyTuple_GetItem(object, i));
    if (value == -1 && PyErr_Occurred()) return -1;
    values[i] = (Value)value;
  }
  return 0;
}

int read_sizes(PyObject* object, const Op& op, std::vector<int64_t>& sizes) {
  if (read_integers(object, "sizes", op.num_sizes, sizes)) return -1;
  for (int64_t size : sizes)
    if (size < 0) {
      PyErr_SetString(PyExc_ValueError, "sizes must not be negative");
      return -1;
    }
  return 0;
}

const Op* find_op(const char* set_name, int index, int is_double) {
  if (index < 0 || index >= hf_metalstm::kNumOps) {
    PyErr_Format(PyExc_ValueError, "there is no op %d", index);
    return nullptr;
  }
  for (const InstructionSet* set : supported_sets())
    if (std::string(set->name) == set_name) return &(is_double ? set->of_double : set->of_float)[index];
  PyErr_Format(PyExc_ValueError, "this processor has no instruction set %s", set_name);
  return nullptr;
}

PyObject* instruction_sets(PyObject*, PyObject*) {
  const auto sets = supported_sets();
  PyObject* names = PyTuple_New(Py_ssize_t(sets.size()));
  if (!names) return nullptr;
  for (size_t i = 0; i < sets.size(); ++i) {
    PyObject* name = PyUnicode_FromString(sets[i]->name);
    if (!name || PyTuple_SetItem(names, Py_ssize_t(i), name)) {
      Py_DECREF(names);
      return nullptr;
    }
  }
  return names;
}

PyObject* packed_bytes(PyObject*, PyObject* arguments) {
  const char* set_name;
  int index, is_double;
  PyObject* size_tuple;
  if (!PyArg_ParseTuple(arguments, "sipO:packed_bytes", &set_name, &index, &is_double, &size_tuple)) return nullptr;
  const Op* op = find_op(set_name, index, is_double);
  std::vector<int64_t> sizes;
  if (!op || read_sizes(size_tuple, *op, sizes)) return nullptr;
  return PyLong_FromLongLong(op->packed_bytes(sizes.data()));
}

PyObject* pack(PyObject*, PyObject* arguments) {
  const char* set_name;
  int index, is_double;
  PyObject *size_tuple, *weight_tuple;
  long long packed;
  if (!PyArg_ParseTuple(arguments, "sipOOL:pack", &set_name, &index, &is_double, &size_tuple, &weight_tuple, &packed))
    return nullptr;
  const Op* op = find_op(set_name, index, is_double);
  std::vector<int64_t> sizes;
  std::vector<void*> weights;
  if (!op || read_sizes(size_tuple, *op, sizes) || read_integers(weight_tuple, "weights", op->num_weights, weights))
    return nullptr;
  Py_BEGIN_ALLOW_THREADS;
  op->pack(sizes.data(), weights.data(), reinterpret_cast<void*>(packed));
  Py_END_ALLOW_THREADS;
  Py_RETURN_NONE;
}

// A number that tells weights from weights. Lanes of words, each a chain of steps that are one to one: any single
// change changes it, several changes cancel once in 2^32 or more.
uint64_t digest_bytes(const char* bytes, size_t size, uint64_t digest) {
  constexpr int kLanes = 64;
  uint32_t lanes[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) lanes[lane] = uint32_t(lane + 1) * 2654435761u;
  size_t at = 0;
  for (; at + sizeof lanes <= size; at += sizeof lanes) {
    uint32_t words[kLanes];
    memcpy(words, bytes + at, sizeof words);
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] = (lanes[lane] ^ words[lane]) * 0x9E3779B1u + 1u;
  }
  if (at < size) {
    uint32_t words[kLanes] = {};
    memcpy(words, bytes + at, size - at);
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] = (lanes[lane] ^ words[lane]) * 0x9E3779B1u + 1u;
  }
  for (uint32_t lane : lanes) {
    digest = (digest ^ lane) * 0x9E3779B97F4A7C15ull;
    digest ^= digest >> 29;
  }
  return digest;
}

PyObject* digest(PyObject*, PyObject* arguments) {
  PyObject *address_tuple, *size_tuple;
  if (!PyArg_ParseTuple(arguments, "OO:digest", &address_tuple, &size_tuple)) return nullptr;
  std::vector<const char*> addresses;
  std::vector<size_t> sizes;
  const Py_ssize_t n = PyTuple_Check(address_tuple) ? PyTuple_Size(address_tuple) : 0;
  if (read_integers(address_tuple, "addresses", n, addresses) || read_integers(size_tuple, "sizes", n, sizes))
    return nullptr;
  uint64_t result = 0;
  for (Py_ssize_t i = 0; i < n; ++i) result = digest_bytes(addresses[i], sizes[i], result + sizes[i]);
  return PyLong_FromUnsignedLongLong(result);
}

PyObject* run(PyObject*, PyObject* arguments) {
  const char* set_name;
  int index, is_double, reverse;
  long long rows, steps, lengths_address, packed;
  Py_ssize_t threads, least_work;
  PyObject *size_tuple, *data_tuple;
  if (!PyArg_ParseTuple(arguments, "sipnnLLLpOOL:run", &set_name, &index, &is_double, &threads, &least_work, &rows,
                        &steps, &lengths_address, &reverse, &size_tuple, &data_tuple, &packed))
    return nullptr;
  const Op* op = find_op(set_name, index, is_double);
  std::vector<int64_t> sizes;
  std::vector<void*> data;
  if (!op || read_sizes(size_tuple, *op, sizes) || read_integers(data_tuple, "data", op->num_data, data))
    return nullptr;
  if (rows < 1 || steps < 1)
    return PyErr_Format(PyExc_ValueError, "a batch of %lld rows and %lld steps is empty", rows, steps);
  try {
    const auto* given = reinterpret_cast<const int64_t*>(lengths_address);
    const std::vector<int64_t> lengths =
        given ? std::vector<int64_t>(given, given + rows) : std::vector<int64_t>(rows, steps);
    std::vector<int64_t> starts(rows);
    int64_t tokens = 0;
    for (long long row = 0; row < rows; ++row) {
      if (lengths[row] < 1 || lengths[row] > steps)
        return PyErr_Format(PyExc_ValueError, "lengths[%lld] is %lld, but a row has 1..%lld steps", row,
                            static_cast<long long>(lengths[row]), steps);
      starts[row] = tokens;
      tokens += lengths[row];
    }
    const Arguments call{{rows, steps, lengths.data(), starts.data(), reverse != 0},
                         sizes.data(),
                         data.data(),
                         reinterpret_cast<const void*>(packed)};
    // Nothing of Python is touched without its lock, and an exception must not skip taking it again.
    std::exception_ptr failure;
    Py_BEGIN_ALLOW_THREADS;
    try {
      run_workers(*op, call, tokens, threads, least_work);
    } catch (...) {
      failure = std::current_exception();
    }
    Py_END_ALLOW_THREADS;
    if (failure) std::rethrow_exception(failure);
  } catch (const std::bad_alloc&) {
    return PyErr_NoMemory();
  }
  Py_RETURN_NONE;
}

PyMethodDef kMethods[] = {
    {"instruction_sets", instruction_sets, METH_NOARGS,
     "instruction_sets() -> names of the instruction sets that this processor has kernels for, the best one last"},
    {"packed_bytes", packed_bytes, METH_VARARGS,
     "packed_bytes(instruction_set, op, is_double, sizes) -> bytes that `pack` writes"},
    {"pack", pack, METH_VARARGS,
     "pack(instruction_set, op, is_double, sizes, weight addresses, target address): lays weights out for the kernels"},
    {"digest", digest, METH_VARARGS, "digest(addresses, bytes) -> a number that changes with the contents"},
    {"run", run, METH_VARARGS,
     "run(instruction_set, op, is_double, threads, least work of a thread, rows, steps, address of lengths or 0, "
     "reverse, sizes, data "
     "addresses, "
     "address of packed weights): computes an op over a batch"},
    {nullptr, nullptr, 0, nullptr}};

PyModuleDef kModule = {PyModuleDef_HEAD_INIT,
                       "_kernels",
                       "Compiled loops of the recurrent ops.",
                       -1,
                       kMethods,
                       nullptr,
                       nullptr,
                       nullptr,
                       nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__kernels() {
  PyObject* module = PyModule_Create(&kModule);
  if (!module) return nullptr;
  const char* names[] = {"LSTM_FORWARD", "LSTM_BACKWARD", "META_LSTM_FORWARD",  "META_LSTM_BACKWARD",
                         "GRU_FORWARD",  "GRU_BACKWARD",  "HYPER_LSTM_FORWARD", "HYPER_LSTM_BACKWARD"};
  static_assert(sizeof names / sizeof *names == hf_metalstm::kNumOps, "one name for each op");
  for (int index = 0; index < hf_metalstm::kNumOps; ++index)
    if (PyModule_AddIntConstant(module, names[index], index)) {
      Py_DECREF(module);
      return nullptr;
    }
  return module;
}
