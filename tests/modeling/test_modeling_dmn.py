"""The Dynamic Memory Network against the paper's equations, and what must not change a result."""

import pytest
import torch
from dmn_reference import Reference
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_metalstm import (
    DataCollatorForDMN,
    DMNConfig,
    DMNForQuestionAnswering,
    DMNForSequenceClassification,
    DMNForTokenClassification,
    DMNModel,
    DMNTokenizer,
)
from hf_metalstm.modeling.dmn_memory import AttentionGate
from hf_metalstm.modeling.recurrent import available_backends, use_backend

SIZES = dict(vocab_size=30, embedding_size=6, hidden_size=6, num_passes=3)
STORIES = [[[5, 6, 7], [8], [9, 10]], [[11, 12]], [[13, 5], [6, 7, 8, 9], [10], [20, 21]]]
QUESTIONS = [[14, 15], [16], [17, 18, 19]]
ANSWERS = [[20, 3], [21, 22, 3], [23, 3]]
# Facts that each pass should find; the second story tells nothing.
SUPPORTING = [[[0], [2], []], [[], [], []], [[3], [], []]]
VARIANTS = {
    "paper": {},
    "lstm": dict(input_cell="lstm"),
    "few features": dict(attention_features=["fact*question", "|fact-memory|", "fact.W.memory"], attention_size=4),
    "no bilinear form": dict(attention_features=["memory", "fact", "question", "fact*memory", "|fact-question|"]),
    "sentences": dict(fact_encoder="sentence", fusion_layer=True),
    "untied": dict(tie_memory_weights=False),
    "end of the passes": dict(use_end_of_passes=True),
    "dmn plus": dict(
        gate="softmax",
        fact_encoder="position",
        fusion_layer=True,
        memory_cell="relu",
        tie_memory_weights=False,
        embedding_size=5,
    ),
    "softmax with an end": dict(gate="softmax", use_end_of_passes=True),
    "positions without fusion": dict(fact_encoder="position"),
    "tied output": dict(tie_word_embeddings=True),
}


def perturbed(model, seed=0):
    """Weights at which nothing is zero by chance."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype) * 0.3)
    return model.double().eval()


def make_model(model_class=DMNForQuestionAnswering, **options):
    torch.manual_seed(0)
    return perturbed(model_class(DMNConfig(**{**SIZES, **options})))


def make_batch(stories=STORIES, questions=QUESTIONS, answers=ANSWERS, supporting=None, filler=0):
    facts, tokens = max(map(len, stories)), max(len(fact) for story in stories for fact in story)
    batch = {
        "input_ids": torch.full((len(stories), facts, tokens), filler),
        "attention_mask": torch.zeros(len(stories), facts, tokens, dtype=torch.long),
        "question_ids": torch.full((len(stories), max(map(len, questions))), filler),
        "question_mask": torch.zeros(len(stories), max(map(len, questions)), dtype=torch.long),
        "labels": torch.full((len(stories), max(map(len, answers))), -100),
    }
    for row, (story, question, answer) in enumerate(zip(stories, questions, answers, strict=True)):
        for number, fact in enumerate(story):
            batch["input_ids"][row, number, : len(fact)] = torch.tensor(fact)
            batch["attention_mask"][row, number, : len(fact)] = 1
        batch["question_ids"][row, : len(question)] = torch.tensor(question)
        batch["question_mask"][row, : len(question)] = 1
        batch["labels"][row, : len(answer)] = torch.tensor(answer)
    if supporting is not None:
        batch["supporting_facts"] = torch.zeros(len(stories), len(supporting[0]), facts, dtype=torch.long)
        for row, passes in enumerate(supporting):
            for index, found in enumerate(passes):
                batch["supporting_facts"][row, index, found] = 1
    return batch


def story_batch(**changes):
    batch = make_batch(**changes)
    del batch["labels"]
    return batch


@pytest.mark.parametrize("backend", available_backends())
@pytest.mark.parametrize("training", [False, True], ids=["evaluating", "training"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_losses_and_gradients_are_those_of_the_equations(variant, training, backend):
    model = make_model(**VARIANTS[variant], gate_loss_weight=0.7).train(training)
    with use_backend(backend):
        output = model(**make_batch(supporting=SUPPORTING))
        output.loss.backward()
    parameters = {name: part.detach().clone().requires_grad_() for name, part in model.named_parameters()}
    if variant == "tied output":
        parameters["lm_head.weight"] = parameters["encoder.embeddings.weight"]
    reference = Reference(parameters, model.config)
    answer_losses, gate_losses = [], []
    for row, (story, words, answer, supporting) in enumerate(zip(STORIES, QUESTIONS, ANSWERS, SUPPORTING, strict=True)):
        facts, q = reference.facts(story), reference.question(words)
        found = [index for index, passes in enumerate(supporting) if passes]
        to_make = (len(found) if found else model.config.num_passes) if training else None
        memory, gates, scores = reference.passes(facts, q, to_make)
        loss, logits = reference.answer_loss(memory, q, answer)
        answer_losses.append(loss)
        if found:
            gate_losses += reference.gate_losses(scores, supporting, len(facts))
        torch.testing.assert_close(output.memory[row], memory)
        torch.testing.assert_close(output.logits[row, : len(answer)], logits)
        assert int(output.passes[row]) == len(gates)
        for index, expected in enumerate(gates):
            torch.testing.assert_close(output.gates[row, index, : len(facts)], expected)
        assert output.gates[row, len(gates) :].eq(0).all()
        assert output.gates[row, :, len(facts) :].eq(0).all()
    answer_loss = torch.stack(answer_losses).sum() / sum(map(len, ANSWERS))
    gate_loss = torch.stack(gate_losses).mean()
    torch.testing.assert_close(output.answer_loss.double(), answer_loss, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(output.gate_loss.double(), gate_loss, rtol=1e-5, atol=1e-6)
    (answer_loss + 0.7 * gate_loss).backward()
    for name, part in model.named_parameters():
        expected = parameters[name].grad
        got = torch.zeros_like(part) if part.grad is None else part.grad
        expected = torch.zeros_like(part) if expected is None else expected
        if name == "encoder.embeddings.weight":
            # The padding's own row gets no gradient, whether or not the answers' output layer shares it.
            got, expected = got[1:], expected[1:]
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-6, msg=lambda text, name=name: f"{name}: {text}")


def test_every_word_has_the_memory_of_the_words_up_to_it():
    model = make_model(DMNForTokenClassification, num_labels=4)
    reference = Reference(dict(model.named_parameters()), model.config)
    ids = torch.tensor([[0, 5, 6, 7], [8, 9, 0, 0]])
    mask = torch.tensor([[0, 1, 1, 1], [1, 1, 0, 0]])
    question = torch.tensor([[14, 15], [16, 17]])
    output = model(ids, attention_mask=mask, question_ids=question)
    assert output.gates.shape == (2, 4, 3, 4)
    for row, start, words in ((0, 1, [5, 6, 7]), (1, 0, [8, 9])):
        facts = reference.facts([[word] for word in words])
        for t in range(len(words)):
            memory, gates, _ = reference.passes(facts[: t + 1], reference.question(question[row].tolist()))
            torch.testing.assert_close(output.memory[row, start + t], memory)
            seen = output.gates[row, start + t]
            torch.testing.assert_close(seen[:, start : start + t + 1], torch.stack(gates))
            assert int(seen.ne(0).sum()) == 3 * (t + 1)
    assert output.gates[0, 0].eq(0).all() and output.gates[1, 2:].eq(0).all()
    logits = output.memory @ model.classifier.weight.t() + model.classifier.bias
    torch.testing.assert_close(output.logits, logits)


def test_a_single_sentence_is_a_story_of_one_word_facts():
    model = make_model(DMNForSequenceClassification, num_labels=4)
    ids = torch.tensor([[5, 6, 7], [8, 9, 0]])
    question = torch.tensor([[14, 15], [16, 17]])
    as_sentence = model(ids, attention_mask=ids != 0, question_ids=question)
    as_story = model(ids[:, :, None], attention_mask=(ids != 0)[:, :, None], question_ids=question)
    assert as_sentence.gates.shape == (2, 3, 3)
    torch.testing.assert_close(as_sentence.logits, as_story.logits)


@pytest.mark.parametrize("features", [["|fact-question|"], ["|fact-memory|"], None])
def test_a_fact_that_equals_the_question_has_a_finite_gradient(features):
    gate = AttentionGate(DMNConfig(**SIZES, attention_features=features)).double()
    torch.nn.init.normal_(gate.bilinear) if gate.bilinear is not None else None
    facts = torch.ones(2, 3, 6, dtype=torch.float64, requires_grad=True)
    question = torch.ones(2, 6, dtype=torch.float64, requires_grad=True)
    gate(facts, question, gate.prepare(facts, question)).sum().backward()
    assert facts.grad.isfinite().all() and question.grad.isfinite().all()
    if features is not None:
        assert facts.grad.eq(0).all(), "the absolute value has the subgradient 0 there"


# ---- padding


@st.composite
def padded_stories(draw):
    """A story, and the same with padding anywhere: among the tokens of a fact, between facts, in the question."""
    facts = draw(st.integers(1, 4))
    ids = torch.tensor(draw(st.lists(st.integers(4, 29), min_size=facts * 3, max_size=facts * 3))).view(facts, 3)
    lengths = draw(st.lists(st.integers(1, 3), min_size=facts, max_size=facts))
    wide_facts = draw(st.integers(facts, 6))
    wide_tokens = draw(st.integers(3, 5))
    places = sorted(draw(st.permutations(range(wide_facts)))[:facts])
    padded = torch.full((wide_facts, wide_tokens), draw(st.integers(0, 29)))
    mask = torch.zeros(wide_facts, wide_tokens, dtype=torch.long)
    story = []
    for place, fact, length in zip(places, ids, lengths, strict=True):
        spots = sorted(draw(st.permutations(range(wide_tokens)))[:length])
        padded[place, spots], mask[place, spots] = fact[:length], 1
        story.append(fact[:length].tolist())
    return story, padded, mask, places


@pytest.mark.parametrize("variant", ["paper", "sentences", "dmn plus", "softmax with an end"])
@settings(max_examples=25, deadline=None)
@given(case=padded_stories())
def test_padded_facts_and_tokens_do_not_exist(variant, case):
    story, padded, mask, places = case
    model = make_model(**VARIANTS[variant])
    alone = story_batch(stories=[story], questions=[[14, 15]], answers=[[3]])
    memory = model.encoder(**alone)
    question = torch.tensor([[7, 14, 7, 15]]), torch.tensor([[0, 1, 0, 1]])
    other = torch.randint(4, 30, padded.shape)
    result = model.encoder(
        torch.stack([padded, other]),
        attention_mask=torch.stack([mask, torch.ones_like(mask)]),
        question_ids=question[0].expand(2, -1),
        question_mask=question[1].expand(2, -1),
    )
    torch.testing.assert_close(result.memory[:1], memory.memory)
    torch.testing.assert_close(result.gates[:1, :, places], memory.gates)
    end = [len(padded)] * model.config.use_end_of_passes
    torch.testing.assert_close(result.gate_scores[:1, :, places + end], memory.gate_scores)
    absent = [place for place in range(len(padded)) if place not in places]
    assert result.gates[0][:, absent].eq(0).all()
    assert result.last_hidden_state[0, absent].eq(0).all()


def test_not_a_number_in_padding_reaches_no_result_and_no_gradient():
    model = make_model()
    embedded = torch.randn(2, 3, 2, 6, dtype=torch.float64)
    mask = torch.ones(2, 3, 2, dtype=torch.long)
    mask[0, 2], mask[1, 0, 1] = 0, 0
    poisoned = embedded.masked_fill(mask[..., None] == 0, float("nan"))
    question = torch.tensor([[14, 15], [16, 17]])
    expected = model.encoder(inputs_embeds=embedded, attention_mask=mask, question_ids=question).memory
    memory = model.encoder(inputs_embeds=poisoned, attention_mask=mask, question_ids=question).memory
    torch.testing.assert_close(memory, expected)
    memory.sum().backward()
    assert all(p.grad.isfinite().all() for p in model.encoder.parameters() if p.grad is not None)


def test_softmax_gates_of_a_pass_sum_to_1():
    output = make_model(gate="softmax")(**make_batch())
    torch.testing.assert_close(output.gates.sum(2), torch.ones(3, 3, dtype=torch.float64))


# ---- supervision of the gates


def test_without_supporting_facts_there_is_no_loss_on_the_gates():
    model = make_model()
    output = model(**make_batch())
    assert output.gate_loss is None
    torch.testing.assert_close(output.loss, output.answer_loss)
    nothing_known = model(**make_batch(supporting=[[[], [], []]] * 3))
    assert nothing_known.gate_loss is None


def test_marks_without_passes_are_those_of_every_pass():
    model, batch = make_model(), make_batch(supporting=[[[0, 2]] * 3, [[]] * 3, [[1]] * 3])
    expected = model(**batch).gate_loss
    batch["supporting_facts"] = batch["supporting_facts"][:, 0]
    torch.testing.assert_close(model(**batch).gate_loss, expected)


def test_the_weight_of_the_gates_counts():
    light, heavy = make_model(gate_loss_weight=0.5), make_model(gate_loss_weight=2.0)
    batch = make_batch(supporting=SUPPORTING)
    difference = heavy(**batch).loss - light(**batch).loss
    torch.testing.assert_close(difference, 1.5 * light(**batch).gate_loss, check_dtype=False)


def test_gates_first_trains_the_gates_alone_and_reports_both_losses():
    model = make_model().train()
    model.train_gates_only = True
    output = model(**make_batch(supporting=SUPPORTING))
    torch.testing.assert_close(output.loss, output.gate_loss)
    output.loss.backward()
    assert output.answer_loss > 0 and model.lm_head.weight.grad.eq(0).all()
    assert model.encoder.episodic_memory.gate.hidden.weight.grad.ne(0).any()
    assert torch.equal(model(**make_batch()).loss, model(**make_batch()).answer_loss), "there is nothing else to train"
    torch.testing.assert_close(
        model.eval()(**make_batch(supporting=SUPPORTING)).loss, output.answer_loss + output.gate_loss
    )


def test_the_end_of_the_passes_stops_a_row_and_leaves_the_others_alone():
    model = make_model(use_end_of_passes=True)
    with torch.no_grad():
        model.encoder.episodic_memory.end_fact.mul_(30)
    made = model(**make_batch()).passes
    seen = {int(passes) for passes in made}
    for seed in range(20):
        seen |= {int(passes) for passes in perturbed(make_model(use_end_of_passes=True), seed)(**make_batch()).passes}
    assert len(seen) > 1, "some rows stop early and some do not, or this test shows nothing"
    for row in range(3):
        one = model(**make_batch(STORIES[row : row + 1], QUESTIONS[row : row + 1], ANSWERS[row : row + 1]))
        assert int(one.passes[0]) == int(made[row])


def test_supporting_facts_do_not_help_to_answer_when_the_model_is_tested():
    model = make_model(use_end_of_passes=True)
    with_marks, without = model(**make_batch(supporting=SUPPORTING)), model(**make_batch())
    assert torch.equal(with_marks.logits, without.logits) and torch.equal(with_marks.gates, without.gates)


# ---- answers


def test_an_answer_of_two_tokens_is_learnt_and_generated():
    torch.manual_seed(0)
    stories = [
        {"facts": [f"go {a}", f"then {b}"], "question": "how ?", "answer": [a, b]} for a in "nsew" for b in "nsew"
    ]
    texts = [text for story in stories for text in (*story["facts"], story["question"])]
    tokenizer = DMNTokenizer.train_from_iterator(texts)
    batch = DataCollatorForDMN(tokenizer)(tokenizer.encode_stories(stories))
    model = DMNForQuestionAnswering(
        DMNConfig(vocab_size=len(tokenizer), embedding_size=16, hidden_size=24, num_passes=2)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(400):
        optimizer.zero_grad()
        model(**batch).loss.backward()
        optimizer.step()
    generated = model.eval().generate(**batch, max_new_tokens=5)
    assert tokenizer.decode_answers(generated) == [story["answer"] for story in stories]
    assert generated.shape[1] == 4, "the start token, two answer tokens and the end token"


@pytest.mark.parametrize("how", [{}, {"num_beams": 3, "num_return_sequences": 2}], ids=["greedy", "beams"])
def test_generation_with_a_cache_is_generation_without(how):
    model, batch = make_model(), story_batch()
    fixed = dict(max_new_tokens=4, min_new_tokens=4, do_sample=False, **how)
    cached, uncached = (model.generate(**batch, **fixed, use_cache=use) for use in (True, False))
    assert torch.equal(cached, uncached)


def test_greedy_generation_is_the_argmax_of_scoring():
    model, batch = make_model(), story_batch()
    written = model.generate(**batch, max_new_tokens=4, min_new_tokens=4, do_sample=False)
    scored = model(**batch, decoder_input_ids=written[:, :-1]).logits
    scored[..., 3] = float("-inf")  # the end token, which min_new_tokens forbids
    assert torch.equal(scored.argmax(-1), written[:, 1:])


def test_sampling_depends_on_the_seed_alone():
    model, batch = make_model(), story_batch()
    runs = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        runs.append(model.generate(**batch, do_sample=True, max_new_tokens=6, min_new_tokens=6))
    assert torch.equal(runs[0], runs[1]) and not torch.equal(runs[0], runs[2])


def test_generation_takes_a_whole_training_batch_and_encoder_outputs():
    model = make_model()
    expected = model.generate(**story_batch(), max_new_tokens=3)
    assert torch.equal(model.generate(**make_batch(supporting=SUPPORTING), max_new_tokens=3), expected)
    encoded = model.encoder(**story_batch())
    assert torch.equal(model.generate(encoder_outputs=encoded, max_new_tokens=3), expected)
    beams = model.generate(encoder_outputs=encoded, max_new_tokens=3, num_beams=4)
    assert encoded.memory.shape == (3, 6), "what is given stays as it is"
    assert torch.equal(model.generate(**story_batch(), max_new_tokens=3, num_beams=4), beams)
    assert torch.equal(
        model(encoder_outputs=encoded.to_tuple(), decoder_input_ids=expected).logits[:, :-1].argmax(-1), expected[:, 1:]
    )


# ---- input that is refused


def changed(**changes):
    batch = make_batch()
    batch.update(changes)
    return batch


BAD_INPUTS = [
    (dict(attention_mask=torch.zeros(3, 4, 4, dtype=torch.long)), ValueError, "story 0 has no facts"),
    (dict(attention_mask=torch.ones(3, 4)), ValueError, r"attention_mask has shape \(3, 4\).*\(3, 4, 4\)"),
    (dict(input_ids=torch.full((3, 4, 4), 30)), ValueError, r"input_ids\[0, 0, 0\] is 30, but ids must lie in 0..29"),
    (dict(input_ids=torch.zeros(3, 0, 4, dtype=torch.long)), ValueError, "story 0 has no facts"),
    (dict(input_ids=torch.zeros(0, 4, 4, dtype=torch.long)), ValueError, "empty batch"),
    (dict(input_ids=torch.zeros(3, dtype=torch.long)), ValueError, r"expected \(batch, facts, tokens\)"),
    (dict(input_ids=[[5]]), TypeError, "input_ids must be a tensor"),
    (dict(input_ids=None), ValueError, "exactly one of input_ids and inputs_embeds"),
    (dict(question_ids=None, question_mask=None), ValueError, "question_ids is missing"),
    (dict(question_mask=torch.tensor([[1, 0, 0], [0, 0, 0], [1, 1, 1]])), ValueError, "question of story 1 is empty"),
    (dict(question_mask=torch.ones(3, 2)), ValueError, r"question_mask has shape \(3, 2\)"),
    (dict(question_ids=torch.zeros(3, 0, dtype=torch.long), question_mask=None), ValueError, "story 0 is empty"),
    (dict(question_ids=torch.zeros(2, 3, dtype=torch.long)), ValueError, r"expected \(3, tokens\)"),
    (dict(question_ids=torch.full((3, 3), -1)), ValueError, r"question_ids\[0, 0\] is -1"),
    (dict(labels=torch.full((3, 3), 99)), ValueError, r"labels\[0, 0\] is 99, but ids must lie in 0..29"),
    (dict(labels=torch.zeros(3, 3)), TypeError, "labels must be integers"),
    (dict(labels=None), ValueError, "call generate"),
    (dict(labels=torch.zeros(2, 3, dtype=torch.long)), ValueError, "2 rows, but 3 stories"),
    (dict(supporting_facts=torch.zeros(3, 2, 4)), ValueError, r"expected \(3, 4\), or \(3, 3, 4\)"),
    (dict(supporting_facts=torch.full((3, 4), 2)), ValueError, r"supporting_facts\[0, 0\] is 2"),
    (
        dict(supporting_facts=torch.tensor([[0, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0]])),
        ValueError,
        "supporting fact 1 of the question of story 1 is beyond its story, which has 1 facts",
    ),
]


@pytest.mark.parametrize("changes, error, message", BAD_INPUTS)
def test_bad_input_is_refused_with_its_place(changes, error, message):
    with pytest.raises(error, match=message):
        make_model()(**changed(**changes))


def test_a_story_without_facts_is_named_among_others():
    batch = make_batch()
    batch["attention_mask"][2] = 0
    with pytest.raises(ValueError, match="story 2 has no facts"):
        make_model()(**batch)


@pytest.mark.parametrize(
    "model_class, labels, message",
    [
        (DMNForSequenceClassification, [0, 5, 1], r"labels\[1\] is 5, but the model has classes 0..3"),
        (DMNForTokenClassification, [[0] * 4, [0, 4, 0, 0], [0] * 4], r"labels\[1, 1\] is 4.*0..3"),
        (DMNForTokenClassification, [0, 1, 2], r"labels have shape \(3,\), expected \(3, 4\)"),
    ],
)
def test_labels_outside_the_classes_are_refused(model_class, labels, message):
    batch = changed(labels=torch.tensor(labels))
    with pytest.raises(ValueError, match=message):
        make_model(model_class, num_labels=4)(**batch)


@pytest.mark.parametrize("model_class", [DMNModel, DMNForSequenceClassification])
def test_a_model_with_a_learned_question_is_not_asked_another(model_class):
    model = make_model(model_class, learned_question=True)
    with pytest.raises(ValueError, match="learned_question=True"):
        model(**story_batch())
    batch = {name: part for name, part in story_batch().items() if not name.startswith("question")}
    assert model(**batch)[0].isfinite().all()


def test_answers_that_are_all_ignored_have_no_loss():
    output = make_model()(**changed(labels=torch.full((3, 3), -100)))
    assert output.loss == 0
    output.loss.backward()


# ---- options, saving, loading


@pytest.mark.parametrize("dropout", ["embedding_dropout", "fact_dropout", "answer_dropout"])
def test_each_dropout_acts_in_training_alone(dropout):
    model, batch = make_model(**{dropout: 0.5}), make_batch()
    plain = make_model()(**batch).loss
    assert torch.equal(model(**batch).loss, plain)
    assert not torch.equal(model.train()(**batch).loss, plain)


@pytest.mark.parametrize("model_class", [DMNModel, DMNForQuestionAnswering, DMNForSequenceClassification])
@pytest.mark.parametrize("variant", ["paper", "softmax with an end"])
def test_a_saved_model_gives_the_same_numbers(model_class, variant, tmp_path):
    model = make_model(model_class, **VARIANTS[variant], num_labels=4).float()
    model.save_pretrained(tmp_path)
    batch = make_batch() if model_class is DMNForQuestionAnswering else story_batch()
    loaded = model_class.from_pretrained(tmp_path).eval()
    expected, got = model(**batch), loaded(**batch)
    assert torch.equal(expected.gates, got.gates) and torch.equal(expected.memory, got.memory)


def test_the_fixed_share_of_the_gates_is_computed_once_for_all_passes(monkeypatch):
    calls = []
    original = AttentionGate.prepare

    def counting(self, *arguments):
        calls.append(1)
        return original(self, *arguments)

    monkeypatch.setattr(AttentionGate, "prepare", counting)
    make_model()(**make_batch())
    assert len(calls) == 1
