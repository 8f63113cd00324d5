"""The CRF against the enumeration of all tag sequences."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hf_metalstm.modeling.crf import LinearChainCRF, allowed_transitions
from hf_metalstm.modeling.crf_forward_backward import ChainScores, log_sums, scaled_sums, scaling_is_safe

BIO = ["O", "B-X", "I-X", "B-Y", "I-Y"]


def sequence_scores(crf, emissions):
    """{tags: score} of every allowed sequence for emissions (tokens, tags), by the formula."""
    start, end, transitions = (p.detach() for p in (crf.start_scores, crf.end_scores, crf.transition_scores))
    scores = {}
    for tags in itertools.product(range(crf.num_tags), repeat=len(emissions)):
        if crf.transition_allowed is not None and not (
            crf.start_allowed[tags[0]]
            and crf.end_allowed[tags[-1]]
            and all(crf.transition_allowed[a, b] for a, b in itertools.pairwise(tags))
        ):
            continue
        score = float(start[tags[0]] + end[tags[-1]])
        score += sum(float(row[tag]) for row, tag in zip(emissions, tags, strict=True))
        score += sum(float(transitions[a, b]) for a, b in itertools.pairwise(tags))
        scores[tags] = score
    return scores


def log_sum(values):
    highest = max(values)
    return highest + math.log(sum(math.exp(value - highest) for value in values))


def make_crf(num_tags, allowed=None, scale=1.0):
    crf = LinearChainCRF(num_tags, allowed).double()
    with torch.no_grad():
        for parameter in crf.parameters():
            parameter.normal_(0, scale)
    return crf


@st.composite
def chains(draw):
    """A CRF and a batch: rows of different lengths anywhere in the width, some real tokens without a tag."""
    scheme = draw(st.sampled_from([None, "IOB1", "IOB2", "IOBES"]))
    if scheme is None:
        num_tags, allowed = draw(st.integers(1, 4)), None
    else:
        labels = ["O", "B-X", "I-X"] + (["E-X", "S-X"] if scheme == "IOBES" else ["B-Y", "I-Y"])
        num_tags, allowed = len(labels), allowed_transitions(labels, scheme)
    torch.manual_seed(draw(st.integers(0, 10_000)))
    crf = make_crf(num_tags, allowed, scale=draw(st.sampled_from([0.3, 3.0, 300.0])))
    width = draw(st.integers(1, 5))
    mask = torch.zeros(draw(st.integers(1, 3)), width, dtype=torch.long)
    tagged = torch.zeros_like(mask)
    for row in range(len(mask)):
        first = draw(st.integers(0, width - 1))
        end = draw(st.integers(first + 1, width))
        mask[row, first:end] = 1
        kept = draw(st.lists(st.integers(first, end - 1), min_size=1, unique=True))
        tagged[row, kept] = 1
    emissions = torch.randn(*mask.shape, num_tags, dtype=torch.float64) * draw(st.sampled_from([1.0, 100.0]))
    return crf, emissions, mask, tagged


@given(chains())
def test_everything_equals_the_enumeration_of_all_sequences(chain):
    crf, emissions, mask, tagged = chain
    garbage = emissions.masked_fill((tagged == 0)[..., None], float("nan"))
    partition = crf.log_partition(garbage, mask, tagged).detach()
    marginals = crf.marginals(garbage, mask, tagged)
    decoded = crf.decode(garbage, mask, tagged)
    for row in range(len(mask)):
        places = tagged[row].nonzero()[:, 0]
        scores = sequence_scores(crf, emissions[row, places])
        total = log_sum(list(scores.values()))
        assert float(partition[row]) == pytest.approx(total, rel=1e-12, abs=1e-12)
        expected = torch.zeros_like(emissions[row])
        for tags, score in scores.items():
            expected[places, list(tags)] += math.exp(score - total)
        torch.testing.assert_close(marginals[row], expected, rtol=1e-9, atol=1e-12)
        best = tuple(decoded[row, places].tolist())
        assert scores[best] == pytest.approx(max(scores.values()), rel=1e-13)
        assert (decoded[row][tagged[row] == 0] == -100).all()
        labels = torch.full_like(mask, -100)
        labels[row, places] = torch.tensor(best)
        likelihood = crf.log_likelihood(garbage, labels, mask).detach()
        assert float(likelihood[row]) == pytest.approx(scores[best] - total, rel=1e-9, abs=1e-10)
        assert all(float(likelihood[other]) == 0 for other in range(len(mask)) if other != row)


def test_probabilities_of_the_eight_sequences_sum_to_one():
    crf = LinearChainCRF(2)
    emissions = torch.randn(1, 3, 2).expand(8, 3, 2)
    labels = torch.tensor(list(itertools.product(range(2), repeat=3)))
    assert float(crf.log_likelihood(emissions, labels).detach().exp().sum()) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("scheme", ["IOB2", "IOBES"])
def test_probabilities_sum_to_one_and_are_zero_for_what_a_scheme_forbids(scheme):
    labels = ["O", "B-X", "I-X", "E-X", "S-X"][: 5 if scheme == "IOBES" else 3]
    crf = make_crf(len(labels), allowed_transitions(labels, scheme))
    sequences = torch.tensor(list(itertools.product(range(len(labels)), repeat=3)))
    emissions = torch.randn(1, 3, len(labels), dtype=torch.float64).expand(len(sequences), -1, -1)
    probabilities = crf.log_likelihood(emissions, sequences).detach().exp()
    assert float(probabilities.sum()) == pytest.approx(1, abs=1e-12)
    allowed = sequence_scores(crf, emissions[0])
    assert [bool(p > 0) for p in probabilities] == [tuple(tags) in allowed for tags in sequences.tolist()]


@pytest.mark.parametrize("constrained", [False, True])
def test_gradients_are_right(constrained):
    crf = make_crf(5, allowed_transitions(BIO, "IOB2") if constrained else None)
    emissions = torch.randn(3, 4, 5, dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[1, 1, 1, 1], [0, 0, 1, 1], [1, 0, 0, 0]])
    labels = torch.tensor([[0, 1, -100, 2], [9, 9, 3, 4], [0, 0, 0, 0]])
    weights = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    names, parameters = zip(*crf.named_parameters(), strict=True)

    def weighted_likelihood(emissions, *values):
        crf_values = dict(zip(names, values, strict=True))
        return weights @ torch.func.functional_call(
            _Likelihood(crf), {f"crf.{name}": value for name, value in crf_values.items()}, (emissions, labels, mask)
        )

    assert torch.autograd.gradcheck(weighted_likelihood, (emissions, *parameters))


class _Likelihood(torch.nn.Module):
    def __init__(self, crf):
        super().__init__()
        self.crf = crf

    def forward(self, *args):
        return self.crf.log_likelihood(*args)


def test_forbidden_scores_get_no_gradient_and_their_value_does_not_matter():
    allowed = allowed_transitions(BIO, "IOB2")
    crf = make_crf(5, allowed)
    emissions = torch.randn(2, 6, 5, dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([[0, 1, 2, 2, 0, 3], [1, 1, 2, 3, 4, 4]])
    loss = crf(emissions, labels)
    loss.backward()
    assert all(parameter.grad.isfinite().all() for parameter in crf.parameters()) and emissions.grad.isfinite().all()
    assert (crf.transition_scores.grad[~allowed.transitions] == 0).all()
    assert (crf.start_scores.grad[~allowed.start] == 0).all()
    assert (crf.transition_scores.grad[allowed.transitions] != 0).any()
    with torch.no_grad():
        crf.transition_scores[~allowed.transitions] = 50.0
        crf.start_scores[~allowed.start] = 50.0
    torch.testing.assert_close(crf(emissions, labels), loss)
    decoded = crf.decode(emissions * 0)
    assert all(bool(allowed.transitions[a, b]) for row in decoded.tolist() for a, b in itertools.pairwise(row))


def test_a_forbidden_row_has_probability_zero_no_gradient_and_is_refused_in_training():
    crf = make_crf(5, allowed_transitions(BIO, "BIO"))
    emissions = torch.randn(2, 3, 5, dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([[0, 1, 2], [1, 4, 0]])
    likelihood = crf.log_likelihood(emissions, labels)
    assert likelihood[1] == -torch.inf and likelihood[0].isfinite()
    likelihood[0].backward()
    assert (emissions.grad[1] == 0).all() and emissions.grad.isfinite().all()
    with pytest.raises(ValueError, match=r"labels\[1\] are \[1, 4, 0\].*tag 4 cannot follow tag 1 \(places 0 and 1"):
        crf(emissions, labels)
    with pytest.raises(ValueError, match="tag 2 cannot be the first"):
        crf(emissions, torch.tensor([[0, 1, 2], [2, 2, 0]]))
    iobes = make_crf(5, allowed_transitions(["O", "B-X", "I-X", "E-X", "S-X"], "IOBES"))
    with pytest.raises(ValueError, match="tag 1 cannot be the last"):
        iobes(emissions, torch.tensor([[0, 0, 1], [0, 0, 0]]))


def test_ignored_labels_are_padding():
    crf = LinearChainCRF(3)
    emissions = torch.randn(1, 3, 3)
    loss = crf(emissions, torch.tensor([[1, 2, -100]]), torch.tensor([[1, 1, 0]]))
    torch.testing.assert_close(loss, crf(emissions[:, :2], torch.tensor([[1, 2]])))
    torch.testing.assert_close(loss, crf(emissions, torch.tensor([[1, 2, -100]])))
    torch.testing.assert_close(loss, crf(emissions, torch.tensor([[1, 2, 0]]), torch.tensor([[1, 1, 0]])))


def test_real_tokens_without_a_tag_are_left_out_of_the_chain():
    crf = LinearChainCRF(3)
    emissions = torch.randn(1, 5, 3)
    likelihood = crf.log_likelihood(emissions, torch.tensor([[1, -100, -100, 2, 0]]))
    torch.testing.assert_close(likelihood, crf.log_likelihood(emissions[:, [0, 3, 4]], torch.tensor([[1, 2, 0]])))


@pytest.mark.parametrize("left, right", [(0, 3), (4, 0), (2, 2)])
def test_padding_on_any_side_changes_nothing(left, right):
    crf = LinearChainCRF(4)
    emissions, labels = torch.randn(1, 5, 4), torch.randint(4, (1, 5))
    padded = torch.nn.functional.pad(emissions, (0, 0, left, right), value=float("inf"))
    mask = torch.nn.functional.pad(torch.ones(1, 5), (left, right))
    padded_labels = torch.nn.functional.pad(labels, (left, right), value=-100)
    torch.testing.assert_close(crf(padded, padded_labels, mask), crf(emissions, labels))
    torch.testing.assert_close(crf.marginals(padded, mask)[:, left : left + 5], crf.marginals(emissions))
    assert torch.equal(crf.decode(padded, mask)[:, left : left + 5], crf.decode(emissions))


def test_the_loss_is_the_mean_over_rows_with_labels():
    crf = LinearChainCRF(3)
    emissions, labels = torch.randn(3, 4, 3), torch.randint(3, (3, 4))
    labels[1] = -100
    one_by_one = [-crf.log_likelihood(emissions[row : row + 1], labels[row : row + 1]) for row in (0, 2)]
    torch.testing.assert_close(crf(emissions, labels), torch.cat(one_by_one).mean())


def test_a_batch_without_labels_has_loss_and_gradient_zero():
    crf = LinearChainCRF(3)
    emissions = torch.randn(2, 4, 3, requires_grad=True)
    loss = crf(emissions, torch.full((2, 4), -100))
    loss.backward()
    assert loss.detach() == 0 and (emissions.grad == 0).all() and (crf.transition_scores.grad == 0).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_float32(dtype):
    crf = LinearChainCRF(6)
    emissions = torch.randn(2, 30, 6).to(dtype).requires_grad_()
    labels = torch.randint(6, (2, 30))
    loss = crf(emissions, labels)
    loss.backward()
    assert loss.dtype == torch.float32 and emissions.grad.dtype == dtype
    torch.testing.assert_close(loss, crf(emissions.detach().float(), labels))
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(crf(emissions.detach().float(), labels), loss)


def test_float32_agrees_with_float64():
    crf = LinearChainCRF(20)
    emissions = 5 * torch.randn(4, 200, 20)
    partition = crf.log_partition(emissions)
    torch.testing.assert_close(partition.double(), crf.double().log_partition(emissions.double()), rtol=1e-6, atol=0)


def random_scores(scale, steps=7, batch=3, tags=4):
    parts = [torch.randn(*shape, dtype=torch.float64) * scale for shape in [(steps, batch, tags), (tags,), (tags,)]]
    transitions = torch.randn(tags, tags, dtype=torch.float64) * scale
    return ChainScores(*parts, transitions, torch.tensor([steps, 1, 4]))


@pytest.mark.parametrize("scheme", [None, "IOB2", "IOBES"])
def test_both_forms_of_the_loop_agree_up_to_the_limit_of_the_fast_one(scheme):
    labels = ["O", "B-X", "I-X"] + (["E-X", "S-X"] if scheme == "IOBES" else ["B-Y", "I-Y"])
    fast_ones = []
    for scale in (0.1, 1.0, 3.0, 10.0, 20.0, 30.0, 40.0, 60.0):
        scores = random_scores(scale, steps=40, tags=5)
        if scheme is not None:
            allowed = allowed_transitions(labels, scheme)
            parts = zip(scores[1:4], (allowed.start, allowed.end, allowed.transitions), strict=True)
            scores = ChainScores(scores[0], *(part.masked_fill(~ok, -torch.inf) for part, ok in parts), scores[4])
        if not scaling_is_safe(scores):
            continue
        fast_ones.append(scale)
        for fast, slow in zip(scaled_sums(scores, True), log_sums(scores, True), strict=True):
            torch.testing.assert_close(fast, slow, rtol=1e-9, atol=1e-13)
    assert fast_ones[-1] >= 10.0


def test_scores_too_wide_for_probabilities_take_the_logarithms():
    assert not scaling_is_safe(random_scores(1000.0))
    assert not scaling_is_safe(random_scores(float("nan")))
    # Tag 1 never leads to tag 0: its lead over tag 0 can grow without bound.
    absorbing = random_scores(1.0)
    absorbing.transitions[1:, 0] = -torch.inf
    assert not scaling_is_safe(absorbing)


def test_constraints_survive_a_model_that_is_built_without_memory_and_loaded_without_them():
    allowed = allowed_transitions(BIO, "IOB2")
    with torch.device("meta"):
        crf = LinearChainCRF(5, allowed_transitions(BIO, "IOB2"))
    crf.to_empty(device="cpu").init_weights()
    assert torch.equal(crf.transition_allowed, allowed.transitions) and torch.equal(crf.start_allowed, allowed.start)
    assert torch.equal(crf.end_allowed, allowed.end) and crf.transition_scores.abs().max() <= 0.1


def test_rows_without_a_tag_disturb_nobody():
    crf = LinearChainCRF(2, allowed_transitions(["B-X", "E-X"], "IOBES"))  # which allow no sequence of one tag
    emissions, tagged = torch.randn(2, 2, 2), torch.tensor([[1, 1], [0, 0]])
    assert crf.log_partition(emissions, tagged=tagged)[1] == 0
    assert crf.decode(emissions, tagged=tagged).tolist() == [[0, 1], [-100, -100]]
    torch.testing.assert_close(
        crf.marginals(emissions, tagged=tagged), torch.tensor([[[1.0, 0], [0, 1]], [[0, 0]] * 2])
    )
    assert crf(emissions, torch.tensor([[0, 1], [-100, -100]])).detach() == pytest.approx(0, abs=1e-6)


def test_whatever_stands_in_padding_reaches_no_gradient():
    crf = LinearChainCRF(3)
    emissions = torch.randn(3, 4, 3)
    labels = torch.tensor([[0, 1, 2, -100], [-100, -100, 1, 1], [-100] * 4])
    gradients = []
    for value in (0.0, float("nan"), float("inf")):
        filled = emissions.masked_fill((labels == -100)[..., None], value).requires_grad_()
        gradients.append(torch.autograd.grad(crf(filled, labels), [filled, *crf.parameters()]))
    for other in gradients[1:]:
        for one, expected in zip(other, gradients[0], strict=True):
            torch.testing.assert_close(one, expected)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("scheme", [None, "IOB2"])
def test_cuda_gives_what_the_cpu_gives(scheme):
    crf = make_crf(5, None if scheme is None else allowed_transitions(BIO, scheme))
    emissions = torch.randn(3, 6, 5, dtype=torch.float64)
    mask = torch.tensor([[1, 1, 1, 1, 1, 1], [0, 0, 0, 1, 1, 1], [1, 1, 0, 0, 0, 0]])
    labels = torch.zeros(3, 6, dtype=torch.long)
    expected = [crf(emissions, labels, mask).detach(), crf.marginals(emissions, mask), crf.decode(emissions, mask)]
    crf, emissions, labels, mask = crf.cuda(), emissions.cuda(), labels.cuda(), mask.cuda()
    found = [crf(emissions, labels, mask).detach(), crf.marginals(emissions, mask), crf.decode(emissions, mask)]
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.cpu(), other)


def test_constraints_travel_with_the_state():
    crf = LinearChainCRF(5, allowed_transitions(BIO, "IOB2"))
    other = LinearChainCRF(5, allowed_transitions(BIO, "IOB1"))
    other.load_state_dict(crf.state_dict())
    assert torch.equal(other.transition_allowed, crf.transition_allowed)


@pytest.mark.parametrize(
    "mask, message",
    [
        ([[1, 1, 1], [1, 0, 1]], "row 1 is 0 at token 1, between real tokens"),
        ([[0, 0, 0], [1, 1, 1]], "row 0 is empty"),
        ([[1, 1]], r"attention_mask has shape \(1, 2\), but the emissions are for \(2, 3\) tokens"),
    ],
)
def test_bad_masks_are_refused_by_every_method(mask, message):
    crf, emissions, mask = LinearChainCRF(2), torch.randn(2, 3, 2), torch.tensor(mask)
    for call in (crf.log_partition, crf.marginals, crf.decode):
        with pytest.raises(ValueError, match=message):
            call(emissions, mask)
    with pytest.raises(ValueError, match=message):
        crf(emissions, torch.zeros(2, 3, dtype=torch.long), mask)


@pytest.mark.parametrize(
    "labels, error, message",
    [
        (torch.tensor([[0, 1, 2]]), ValueError, r"labels\[0, 2\] is 2, but tag ids lie in 0..1"),
        (torch.tensor([[0, -1, 0]]), ValueError, r"labels\[0, 1\] is -1"),
        (torch.tensor([[0, 1]]), ValueError, r"labels have shape \(1, 2\), but the emissions are for \(1, 3\)"),
        (torch.tensor([[0.0, 1.0, 0.0]]), TypeError, "integers"),
        ([[0, 1, 0]], TypeError, "tensor"),
    ],
)
def test_bad_labels_are_refused(labels, error, message):
    with pytest.raises(error, match=message):
        LinearChainCRF(2)(torch.randn(1, 3, 2), labels)


def test_other_bad_input_is_refused():
    crf = LinearChainCRF(2)
    with pytest.raises(ValueError, match="num_tags is 0"):
        LinearChainCRF(0)
    with pytest.raises(ValueError, match=r"allowed.start has shape \(5,\), but 3 tags"):
        LinearChainCRF(3, allowed_transitions(BIO, "IOB2"))
    with pytest.raises(ValueError, match=r"emissions have shape \(1, 3, 4\), expected \(batch, tokens, 2\)"):
        crf.decode(torch.randn(1, 3, 4))
    with pytest.raises(ValueError, match="empty batch"):
        crf.decode(torch.randn(0, 3, 2))
    with pytest.raises(TypeError, match="floating-point"):
        crf.decode(torch.zeros(1, 3, 2, dtype=torch.long))
    only_begin_and_end = LinearChainCRF(2, allowed_transitions(["B-X", "E-X"], "IOBES"))
    with pytest.raises(ValueError, match="row 1: the constraints allow no sequence of 1 tags"):
        only_begin_and_end.log_partition(torch.randn(2, 2, 2), torch.tensor([[1, 1], [1, 0]]))


@pytest.mark.parametrize(
    "labels, scheme, message",
    [
        (["O", "I-O"], "IOB2", "tag 'I-O' puts a chunk prefix before O"),
        (["O", "B"], "IOB2", "tag 'B' is neither"),
        (["O", "X-NP"], "IOB2", "tag 'X-NP' is neither"),
        (["O", "E-NP"], "IOB2", r"labels\[1\] is 'E-NP', but IOB2 has no tags with E-"),
        (["O", "B-NP", "O"], "IOB2", r"labels\[2\] is 'O', which labels\[0\] is already"),
        (["O"], "BILOU", "scheme is 'BILOU', but must be one of IOB1, IOB2, IOBES"),
    ],
)
def test_bad_tags_and_schemes_are_refused(labels, scheme, message):
    with pytest.raises(ValueError, match=message):
        allowed_transitions(labels, scheme)


def test_constraints_of_the_schemes():
    labels = ["O", "B-X", "I-X", "B-Y", "I-Y"]
    iob1 = allowed_transitions(labels, "IOB1")
    assert iob1.start.tolist() == [True, False, True, False, True]
    assert iob1.transitions[2].tolist() == [True, True, True, False, True]
    iobes = allowed_transitions(["O", "B-X", "I-X", "E-X", "S-X", "I-Y"], "BIOES")
    assert iobes.start.tolist() == [True, True, False, False, True, False]
    assert iobes.end.tolist() == [True, False, False, True, True, False]
    assert iobes.transitions[1].tolist() == [False, False, True, True, False, False]
    assert iobes.transitions[3].tolist() == [True, True, False, False, True, False]
