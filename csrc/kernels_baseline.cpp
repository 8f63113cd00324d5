// Copyright 2026 The hf_metalstm authors.
// Licensed under the Apache License, Version 2.0 (the "License"); see the LICENSE file.

#include "instruction_set.h"

HF_METALSTM_INSTRUCTION_SET(kBaseline, "baseline")
