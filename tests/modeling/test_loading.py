"""Loaded models compute what the saved ones did; what cannot be loaded says which file, what is wrong, what to do."""

import pytest
import torch

from hf_metalstm import MetaLSTMConfig, MetaLSTMForSequenceClassification
from hf_metalstm.modeling.loading import align_tensors

SIZES = dict(vocab_size=40, embedding_size=6, hidden_size=5, meta_size=4, z_size=3)


@pytest.mark.parametrize("sizes", [(6, 3, 4), (7, 5, 3), (11, 3, 5), (40, 6, 5)])
def test_results_after_loading_are_bit_for_bit_those_before_saving(tmp_path, sizes):
    vocab_size, embedding_size, hidden_size = sizes
    for seed, settings in enumerate(({}, {"cell": "lstm"}, {"bidirectional": True, "pooling": "concat"})):
        torch.manual_seed(seed)
        config = MetaLSTMConfig(
            vocab_size=vocab_size,
            embedding_size=embedding_size,
            hidden_size=hidden_size,
            meta_size=3,
            z_size=2,
            **settings,
        )
        model = MetaLSTMForSequenceClassification(config).eval()
        model.save_pretrained(tmp_path / str(seed))
        loaded, info = MetaLSTMForSequenceClassification.from_pretrained(tmp_path / str(seed), output_loading_info=True)
        assert not info["missing_keys"]
        for length in range(1, 8):
            ids = torch.randint(1, vocab_size, (1 + seed, length))
            with torch.no_grad():
                assert torch.equal(model(ids).logits, loaded.eval()(ids).logits)
        for tensor in (*loaded.parameters(), *loaded.buffers()):
            assert tensor.data_ptr() % 64 == 0


def test_aligning_keeps_tied_parameters_tied_and_aligned_ones_in_place():
    memory = torch.empty(64, dtype=torch.float32)
    start = next(i for i in range(16) if (memory.data_ptr() + 4 * i) % 64)
    first = torch.nn.Linear(4, 4)
    first.weight = torch.nn.Parameter(memory[start : start + 16].normal_().view(4, 4))
    second = torch.nn.Linear(4, 4)
    second.weight = first.weight
    values, place = first.weight.detach().clone(), first.bias.data_ptr()
    align_tensors(torch.nn.ModuleList([first, second]))
    assert first.weight is second.weight and first.weight.data_ptr() % 64 == 0
    assert torch.equal(first.weight, values) and first.bias.data_ptr() == place


@pytest.fixture
def folder(tmp_path):
    MetaLSTMForSequenceClassification(MetaLSTMConfig(**SIZES)).save_pretrained(tmp_path)
    return tmp_path


def test_a_truncated_file_is_named_with_both_sizes(folder):
    weights = folder / "model.safetensors"
    whole = weights.read_bytes()
    for kept in (len(whole) - 10, 100, 3):
        weights.write_bytes(whole[:kept])
        with pytest.raises(OSError, match=rf"model.safetensors \({kept} bytes\) is truncated"):
            MetaLSTMForSequenceClassification.from_pretrained(folder)


def test_a_git_lfs_pointer_is_recognised(folder):
    (folder / "model.safetensors").write_text(
        "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22e\nsize 12345\n"
    )
    with pytest.raises(OSError, match=r"model.safetensors \(\d+ bytes\) looks like a git-lfs pointer.*git lfs pull"):
        MetaLSTMForSequenceClassification.from_pretrained(folder)


def test_a_folder_without_weights_is_transformers_own_error(tmp_path):
    MetaLSTMConfig(**SIZES).save_pretrained(tmp_path)
    with pytest.raises(OSError, match="no file named"):
        MetaLSTMForSequenceClassification.from_pretrained(tmp_path)


def test_other_sizes_are_one_line_with_the_way_out(folder):
    with pytest.raises(ValueError) as raised:
        MetaLSTMForSequenceClassification.from_pretrained(folder, vocab_size=30)
    message = str(raised.value)
    assert "\n" not in message and "40 in the checkpoint but 30 in the model" in message
    assert "remap_vocabulary" in message and "1 tensors differ" in message
    with pytest.raises(ValueError, match=r"\d+ tensors differ in size \(.*5 in the checkpoint but 7 in the model"):
        MetaLSTMForSequenceClassification.from_pretrained(folder, hidden_size=7)


def test_a_new_head_of_another_size_is_made_on_request(folder):
    model = MetaLSTMForSequenceClassification.from_pretrained(folder, num_labels=7, ignore_mismatched_sizes=True)
    assert model.classifiers[0].out_features == 7
    assert model(torch.tensor([[1, 2]])).logits.shape == (1, 7)
